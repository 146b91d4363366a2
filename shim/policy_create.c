/* SPDX-License-Identifier: MIT */
/* policy_create: see policy_create.h. */
#include "policy_create.h"

#include <sys/stat.h>

#define LOOK_FIRST  64u /* then after twice as many: names were missing, but a directory fills */
#define OTHER_EVERY 16u /* the slower way, so that its time is known */

/* Users of other namespaces all look like this one. */
#define OVERFLOW_UID 65534u

enum create_plan policy_create(const struct create_facts *f)
{
    bool look = f->kind == CREATE_KIND_REMOTE;
    bool other = f->turn % OTHER_EVERY == OTHER_EVERY - 1;

    if (f->setting == CFG_CREATE_SYNC)
        return CREATE_PLAIN;
    if (f->setting == CFG_CREATE_AUTO &&
        (f->kind == CREATE_KIND_PLAIN || f->kind == CREATE_KIND_UNKNOWN))
        return CREATE_PLAIN;
    if (f->missing > 0 && !f->known) {
        if (f->missing >= LOOK_FIRST && (f->missing & (f->missing - 1)) == 0)
            return CREATE_LOOK;
        return f->setting == CFG_CREATE_AUTO && f->kind == CREATE_KIND_MEASURE ? CREATE_PLAIN
                                                                               : CREATE_LEAD;
    }
    if (f->setting == CFG_CREATE_DEDUPE ||
        (look && (f->look_ns == 0 || f->look_ns >= CREATE_FAST_NS)))
        return CREATE_LOOK;
    if (f->look_ns != 0 && f->plain_ns != 0)
        look = f->look_ns < f->plain_ns;
    return look != other ? CREATE_LOOK : CREATE_TIMED;
}

bool policy_create_keeps(uint32_t mode, uint32_t uid, uint32_t own_uid)
{
    return S_ISREG(mode) && uid == own_uid && uid != OVERFLOW_UID;
}

uint32_t policy_create_left(uint32_t left, enum create_kind kind)
{
    if (kind == CREATE_KIND_REMOTE || kind == CREATE_KIND_MEASURE)
        return CREATE_LOOKS;
    return left > 0 ? left - 1 : 0;
}

enum create_kind policy_create_kind(uint64_t fs_type, uint32_t kernel)
{
    switch (fs_type & 0xffffffffu) {
    case 0x65735546: /* FUSE, virtiofs */
    case 0x6969:     /* NFS */
    case 0x0bd00bd0: /* Lustre */
    case 0xff534d42: /* CIFS */
    case 0xfe534d42: /* SMB2 */
    case 0x00c36400: /* Ceph */
    case 0x01021997: /* 9p */
    case 0x5346414f: /* AFS */
    case 0x6b414653: /* kAFS */
    case 0x73757245: /* Coda */
    case 0x47504653: /* GPFS */
    case 0x7461636f: /* OCFS2 */
    case 0x01161970: /* GFS2 */
    case 0x19830326: /* BeeGFS */
    case 0x20030528: /* OrangeFS */
        return CREATE_KIND_REMOTE;
    default:
        return kernel >= 0x60c ? CREATE_KIND_PLAIN : CREATE_KIND_MEASURE;
    }
}
