/* SPDX-License-Identifier: MIT */
/* fs_name: see fs_name.h. */
#include <stddef.h>
#include <stdint.h>

#include "fs_name.h"

static const struct {
    uint32_t type;
    const char *name;
    bool deferred, remote;
} known[] = {
    {0xef53, "ext4 (or ext2, ext3)", true, false},
    {0x58465342, "XFS", true, false},
    {0x9123683e, "btrfs", true, false},
    {0x01021994, "tmpfs", true, false},
    {0x858458f6, "ramfs", false, false},
    {0x794c7630, "overlay", false, false},
    {0x65735546, "FUSE", false, true},
    {0x6969, "NFS", false, true},
    {0xff534d42, "CIFS", false, true},
    {0xfe534d42, "SMB2", false, true},
    {0x00c36400, "Ceph", false, true},
    {0x0bd00bd0, "Lustre", false, true},
    {0x47504653, "GPFS", false, true},
    {0x19830326, "BeeGFS", false, true},
    {0x01021997, "9p", false, true},
    {0x2fc12fc1, "ZFS", false, false},
    {0xf2f52010, "f2fs", false, false},
    {0xca451a4e, "bcachefs", false, false},
    {0x4d44, "FAT", false, false},
    {0x2011bab0, "exFAT", false, false},
    {0x7366746e, "NTFS", false, false},
    {0x73717368, "squashfs", false, false},
};

enum { KNOWN = sizeof known / sizeof *known };

static int find(long type)
{
    for (int i = 0; i < KNOWN; i++)
        if (known[i].type == (uint32_t)type)
            return i;
    return -1;
}

const char *fs_name(long type)
{
    int i = find(type);

    return i >= 0 ? known[i].name : NULL;
}

bool fs_deferred(long type)
{
    int i = find(type);

    return i >= 0 && known[i].deferred;
}

bool fs_remote(long type)
{
    int i = find(type);

    return i >= 0 && known[i].remote;
}
