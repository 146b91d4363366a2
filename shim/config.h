/* SPDX-License-Identifier: MIT */
/*
 * Configuration: rlshim.conf and RLSHIM_<NAME> variables in, struct settings out.
 *
 * Rules for callers
 *  - Nothing here allocates, prints, locks or touches errno by itself; memory and the file calls
 *    come from the caller, so it may run before libc is usable and inside interposed calls.
 *  - struct config points into the text given to cfg_parse or cfg_load: keep that text unchanged
 *    for as long as the config is used. Environment values are copied, because programs that set
 *    their process title overwrite the environment block.
 *  - A config is built by one thread and only read afterwards; readers then need no lock.
 *  - After any failure the config answers mode = off to whoever asks, and the caller prints
 *    cfg_error_line() once. A guest with a bad configuration leaves the program alone.
 *
 * Grammar of the file (UTF-8 or any bytes but NUL; LF or CRLF; a byte order mark is skipped)
 *    [default]            for everything; settings before the first section belong here as well
 *    [app GLOB]           GLOB matches the program's file name
 *    [path /GLOB]         GLOB matches absolute paths; * ? [..] never match a '/'
 *    KEY = VALUE          once a section; a section may be opened again, the later value wins
 *    # or ;               a comment at the start of a line or after a blank
 *    "..." or '...'       around a value or GLOB keeps blanks, # and ; literal; no escapes inside
 * The most specific source wins: environment, [path], [app], [default], built-in.
 */
#ifndef SHIM_CONFIG_H
#define SHIM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define CFG_AUTO       UINT64_MAX /* numbers: "auto" */
#define CFG_OFF        0          /* numbers: "off" */
#define CFG_PATH_BYTES 1024       /* report, log and stats paths, with their NUL */

enum {
    CFG_SECTIONS_MAX = 128,
    CFG_ASSIGNS_MAX = 1024,
    CFG_FILE_BYTES_MAX = 1 << 20,
    CFG_ENV_BYTES = 8192, /* all values given by environment, together */
};

/* enum cfg_mode, cfg_share, cfg_punch, …: one per ENUM row, named after its field. */
#define CFG_ENUMERATOR(value, text, since) value,
#define CFG_DECLARE_ENUM(field, words)     enum cfg_##field{CFG_WORDS_##words(CFG_ENUMERATOR)};
#define CFG_DECLARE_LOG(field, words)      CFG_DECLARE_ENUM(field, words)
#define CFG_DECLARE_BOOL(field, words)
#define CFG_DECLARE_SIZE(field, words)
#define CFG_DECLARE_TIME(field, words)
#define CFG_DECLARE_COUNT(field, words)
#define CFG_DECLARE_PATH(field, words)
#define CFG_SETTING(key, field, kind, words, ...) CFG_DECLARE_##kind(field, words)
#include "settings.def"

/*
 * Settings in force for one program or one file; members and units come from settings.def. A row
 * or word that is LATER shows what this release does instead. Every byte is defined, padding too:
 * memcmp tells whether two files share their settings. report_path, log_path and stats_path are ""
 * when off; relative ones are meant from the working directory at program start.
 */
#define CFG_MEMBER_ENUM(field) enum cfg_##field field;
#define CFG_MEMBER_LOG(field)                                                                      \
    enum cfg_##field field;                                                                        \
    char field##_path[CFG_PATH_BYTES];
#define CFG_MEMBER_BOOL(field)  bool field;
#define CFG_MEMBER_SIZE(field)  uint64_t field;
#define CFG_MEMBER_TIME(field)  uint64_t field;
#define CFG_MEMBER_COUNT(field) uint64_t field;
#define CFG_MEMBER_PATH(field)  char field[CFG_PATH_BYTES];
struct settings {
#define CFG_SETTING(key, field, kind, ...) CFG_MEMBER_##kind(field)
#include "settings.def"
};

enum cfg_kind {
    CFG_KIND_ENUM,
    CFG_KIND_BOOL,
    CFG_KIND_SIZE,
    CFG_KIND_TIME,
    CFG_KIND_COUNT,
    CFG_KIND_PATH,
    CFG_KIND_LOG,
};

struct cfg_word {
    uint64_t value;
    const char *text; /* NULL ends a list */
    bool later;
};

/* One row of settings.def. */
struct cfg_row {
    const char *key;
    enum cfg_kind kind;
    const struct cfg_word *words;
    uint64_t min, max, unit; /* bytes, ns or pieces, by kind */
    const char *builtin;
    bool per_path;
    bool later;
    const char *meanwhile;
    const char *help;
    size_t offset;      /* of the member in struct settings */
    size_t path_offset; /* PATH, LOG: of the path in it; else 0 */
};

enum {
#define CFG_SETTING(key, field, ...) CFG_ROW_##field,
#include "settings.def"
    CFG_ROWS
};
extern const struct cfg_row cfg_rows[CFG_ROWS];

/* A parsed value. PATH and LOG keep their path as a piece of the text it came from. */
struct cfg_value {
    uint64_t number;
    const char *path;
    uint32_t path_len;
    bool later; /* a word that is not effective yet */
};

enum cfg_section_kind { CFG_IN_DEFAULT, CFG_IN_APP, CFG_IN_PATH, CFG_IN_ENV };

struct cfg_section {
    enum cfg_section_kind kind;
    const char *glob;
    uint32_t glob_len;
    uint16_t first, count; /* its assignments, contiguous */
};

struct cfg_assign {
    uint16_t row;
    uint32_t line; /* 0: environment */
    const char *text;
    uint32_t text_len;
    struct cfg_value value;
};

enum cfg_skip { /* why ./rlshim.conf was not used */
                CFG_SKIP_NONE,
                CFG_SKIP_OWNER,
                CFG_SKIP_WRITABLE,
                CFG_SKIP_LINK,
                CFG_SKIP_NOT_A_FILE,
                CFG_SKIP_UNREADABLE,
};

struct config {
    bool off; /* bad configuration or AT_SECURE: mode = off whatever else is here */
    bool has_paths;
    enum cfg_skip skip;
    uint16_t nsections, nassigns;
    uint16_t env_used;
    char file[CFG_PATH_BYTES]; /* the file in use, "" if none */
    struct cfg_section sections[CFG_SECTIONS_MAX];
    struct cfg_assign assigns[CFG_ASSIGNS_MAX];
    char env[CFG_ENV_BYTES];
};

struct cfg_error {
    char file[CFG_PATH_BYTES]; /* or "environment" */
    uint32_t line;             /* 0: the whole file */
    char key[80];              /* "" if the line never got as far as a key */
    char reason[320];
    char hint[320];
};

/* Calls that read a file; each returns its result or a negative errno. */
struct cfg_io {
    int (*open)(const char *path, int flags);
    ssize_t (*read)(int fd, void *buf, size_t n);
    int (*fstat)(int fd, struct stat *st);
    int (*close)(int fd);
};

/* Forget everything: built-in values only. */
void cfg_reset(struct config *c);

/* Text of a file into *c (reset first). 0, or -1 with *err filled. */
int cfg_parse(struct config *c, const char *text, size_t len, const char *file,
              struct cfg_error *err);

/*
 * RLSHIM_<NAME> variables on top of *c. Empty ones count as not set; of a name that comes twice the
 * first counts, as for getenv. RLSHIM_CONF is left to cfg_load, any other name must be a setting.
 */
int cfg_env(struct config *c, char *const *env, struct cfg_error *err);

/*
 * Find, read and parse the file, then the environment. The first of $RLSHIM_CONF (/dev/null: no
 * file), ./rlshim.conf, $XDG_CONFIG_HOME/rlshim.conf (~/.config/rlshim.conf), /etc/rlshim.conf that
 * exists is the only one read. ./rlshim.conf counts only as a plain file of `uid` that group and
 * others cannot write; otherwise it is passed over and c->skip says why, for anyone may have put it
 * into a directory like /tmp. `secure` (AT_SECURE): nothing is read, mode is off, no error.
 * Reads at most min(textcap, CFG_FILE_BYTES_MAX) bytes; never blocks on a FIFO or terminal.
 */
int cfg_load(struct config *c, const struct cfg_io *io, char *const *env, uid_t uid, bool secure,
             char *textbuf, size_t textcap, struct cfg_error *err);

/*
 * What holds for program `app` (its file name, directories are cut off; NULL: unknown) and the file
 * at absolute `path` (NULL: for the program as a whole).
 */
void cfg_settings(const struct config *c, const char *app, const char *path, struct settings *out);

/* Is there a [path …] section; does one match `path`? If not, the program's settings hold. */
bool cfg_has_paths(const struct config *c);
/* Does anything vouch for named files (share other than auto)? */
bool cfg_vouches(const struct config *c);
bool cfg_path_matches(const struct config *c, const char *path);

/* Does a [path …] section that counts (no variable overrules it) set `row`, a number, to other than
 * 0? */
bool cfg_any_path_sets(const struct config *c, int row);

/*
 * "rlshim: FILE:LINE: KEY: reason; what to do. The program runs without rlshim." One line without
 * its newline, control and broken UTF-8 bytes replaced, cut to fit. Returns its length.
 */
int cfg_error_line(const struct cfg_error *e, char *buf, size_t n);

/* Settings that somebody wrote but that are not effective yet, each key once: start with *pos = 0.
 */
struct cfg_notice {
    const struct cfg_row *row;
    const struct cfg_assign *assign;
    const char *file;
};
bool cfg_later_next(const struct config *c, unsigned *pos, struct cfg_notice *out);
int cfg_later_line(const struct cfg_notice *notice, char *buf, size_t n);

/* One line on why ./rlshim.conf was passed over; 0 if it was not. */
int cfg_skip_line(const struct config *c, char *buf, size_t n);

/* A setting in force as text that the parser takes back. Returns the length. */
int cfg_format(const struct cfg_row *row, const struct settings *s, char *buf, size_t n);

#endif
