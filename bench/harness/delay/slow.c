/* A folder seen read-only, on which each stat and each open takes some milliseconds more: what a cluster's file system costs.
 *
 *     slow FOLDER MOUNT DELAY_MS
 *
 * Delayed are GETATTR (stat, fstat), OPEN and OPENDIR, each by itself, any number at once. Attributes are never cached, of
 * directories neither; names of directories are, those of files are looked up again, without delay: so that a stat of a file
 * is one delay however deep it lies. Reading, listing and extended attributes take no longer. It runs in the foreground until it is unmounted.
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 1 << 16, THREADS = 256 };
static const double FOR_EVER = 1e6;

/* What the kernel knows by number: a path, and how often it was told of it. Found by device and inode. */
struct node {
    struct node *next;
    dev_t dev;
    ino_t ino;
    uint64_t told;
    char *path;
};

static struct node *table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node root;
static struct timespec delay;

static struct node *node_of(fuse_ino_t ino) { return ino == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)ino; }

static void wait_a_little(void) { nanosleep(&delay, NULL); }

static struct node *remember(const struct stat *st, const char *path) {
    size_t bucket = (st->st_ino * 11400714819323198485u ^ st->st_dev) % BUCKETS;
    pthread_mutex_lock(&lock);
    struct node *node = table[bucket];
    while (node && (node->ino != st->st_ino || node->dev != st->st_dev)) node = node->next;
    if (!node && (node = calloc(1, sizeof *node))) {
        node->dev = st->st_dev, node->ino = st->st_ino, node->path = strdup(path);
        node->next = table[bucket], table[bucket] = node;
    }
    if (node) node->told++;
    pthread_mutex_unlock(&lock);
    return node;
}

static void forget_one(fuse_ino_t ino, uint64_t times) {
    if (ino == FUSE_ROOT_ID) return;
    pthread_mutex_lock(&lock);
    struct node *node = node_of(ino);
    node->told -= times;
    if (!node->told) {
        struct node **at = &table[(node->ino * 11400714819323198485u ^ node->dev) % BUCKETS];
        while (*at != node) at = &(*at)->next;
        *at = node->next;
        free(node->path);
        free(node);
    }
    pthread_mutex_unlock(&lock);
}

static void slow_forget(fuse_req_t req, fuse_ino_t ino, uint64_t times) {
    forget_one(ino, times);
    fuse_reply_none(req);
}

static void slow_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *all) {
    for (size_t i = 0; i < count; i++) forget_one(all[i].ino, all[i].nlookup);
    fuse_reply_none(req);
}

static void slow_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    char *path;
    if (asprintf(&path, "%s/%s", node_of(parent)->path, name) < 0) return (void)fuse_reply_err(req, ENOMEM);
    struct fuse_entry_param entry = {0};
    struct node *node = NULL;
    if (lstat(path, &entry.attr)) fuse_reply_err(req, errno);
    else if (!(node = remember(&entry.attr, path))) fuse_reply_err(req, ENOMEM);
    else {
        entry.ino = (uintptr_t)node;
        entry.entry_timeout = S_ISDIR(entry.attr.st_mode) ? FOR_EVER : 0;
        if (fuse_reply_entry(req, &entry)) forget_one(entry.ino, 1);
    }
    free(path);
}

static void slow_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct stat st;
    /* With a file: the kernel asks for its size within a read, for which nobody has called stat or fstat. */
    if (!fi) wait_a_little();
    if (lstat(node_of(ino)->path, &st)) fuse_reply_err(req, errno);
    else fuse_reply_attr(req, &st, 0);
}

static void slow_readlink(fuse_req_t req, fuse_ino_t ino) {
    char target[PATH_MAX + 1];
    ssize_t length = readlink(node_of(ino)->path, target, PATH_MAX);
    if (length < 0) return (void)fuse_reply_err(req, errno);
    target[length] = 0;
    fuse_reply_readlink(req, target);
}

/* An attribute, or how long it is. */
static void slow_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
    char *value = malloc(size + 1);
    ssize_t length = value ? lgetxattr(node_of(ino)->path, name, value, size) : (errno = ENOMEM, -1);
    if (length < 0) fuse_reply_err(req, errno);
    else if (size) fuse_reply_buf(req, value, length);
    else fuse_reply_xattr(req, length);
    free(value);
}

static void slow_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
    char *names = malloc(size + 1);
    ssize_t length = names ? llistxattr(node_of(ino)->path, names, size) : (errno = ENOMEM, -1);
    if (length < 0) fuse_reply_err(req, errno);
    else if (size) fuse_reply_buf(req, names, length);
    else fuse_reply_xattr(req, length);
    free(names);
}

static void slow_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    wait_a_little();
    int fd = open(node_of(ino)->path, (fi->flags & ~O_NOFOLLOW) | O_CLOEXEC);
    if (fd < 0) return (void)fuse_reply_err(req, errno);
    fi->fh = fd, fi->keep_cache = 1;
    fuse_reply_open(req, fi);
}

static void slow_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi) {
    (void)ino;
    struct fuse_bufvec buffer = FUSE_BUFVEC_INIT(size);
    buffer.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    buffer.buf[0].fd = fi->fh, buffer.buf[0].pos = offset;
    fuse_reply_data(req, &buffer, FUSE_BUF_SPLICE_MOVE);
}

static void slow_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    close(fi->fh);
    fuse_reply_err(req, 0);
}

static void slow_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    wait_a_little();
    DIR *dir = opendir(node_of(ino)->path);
    if (!dir) return (void)fuse_reply_err(req, errno);
    fi->fh = (uintptr_t)dir;
    fuse_reply_open(req, fi);
}

static void slow_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi) {
    (void)ino;
    DIR *dir = (DIR *)(uintptr_t)fi->fh;
    char *buffer = malloc(size);
    size_t used = 0;
    if (!buffer) return (void)fuse_reply_err(req, ENOMEM);
    if (offset != telldir(dir)) seekdir(dir, offset);
    for (;;) {
        long before = telldir(dir);
        struct dirent *entry = readdir(dir);
        if (!entry) break;
        struct stat st = {.st_ino = entry->d_ino, .st_mode = entry->d_type << 12};
        size_t needs = fuse_add_direntry(req, buffer + used, size - used, entry->d_name, &st, telldir(dir));
        if (needs > size - used) {
            seekdir(dir, before);
            break;
        }
        used += needs;
    }
    fuse_reply_buf(req, buffer, used);
    free(buffer);
}

static void slow_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    closedir((DIR *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
}

static void slow_statfs(fuse_req_t req, fuse_ino_t ino) {
    struct statvfs st;
    if (statvfs(node_of(ino)->path, &st)) fuse_reply_err(req, errno);
    else fuse_reply_statfs(req, &st);
}

static const struct fuse_lowlevel_ops operations = {
    .lookup = slow_lookup, .forget = slow_forget, .forget_multi = slow_forget_multi, .getattr = slow_getattr,
    .getxattr = slow_getxattr, .listxattr = slow_listxattr,
    .readlink = slow_readlink, .open = slow_open, .read = slow_read, .release = slow_release, .opendir = slow_opendir,
    .readdir = slow_readdir, .releasedir = slow_releasedir, .statfs = slow_statfs,
};

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: slow FOLDER MOUNT DELAY_MS\n"), 2;
    double ms = atof(argv[3]);
    delay.tv_sec = ms / 1000, delay.tv_nsec = (ms - delay.tv_sec * 1000) * 1e6;
    root.path = argv[1];
    char *words[] = {argv[0], "-o", "ro,allow_other,fsname=slow"};
    struct fuse_args args = FUSE_ARGS_INIT(3, words);
    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[2])) return 1;
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(config, THREADS);
    fuse_loop_cfg_set_idle_threads(config, THREADS);
    int status = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    fuse_session_unmount(session);
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
    return status != 0;
}
