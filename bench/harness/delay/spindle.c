/* A disk with one head, as a file: what reading here and writing there at once costs.
 *
 *     spindle IMAGE MOUNT RATE_MBS
 *
 * MOUNT/disk is IMAGE, to be used as a block device by way of a loop device with direct I/O. Requests are served one after the
 * other, in the order in which they come. One that begins where the last one ended, or a little behind it, takes the time in
 * which its bytes, and those between, pass below the head; any other one has the head moved first, which takes the longer the
 * farther it is (2 to 14 ms, by the root of the distance), and waits for half a turn of 7,200 a minute. There is no cache: what is written
 * is there when that is answered. It runs in the foreground until it is unmounted.
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DISK = 2, THREADS = 64 };
static const double SEEK_LEAST = 2e-3, SEEK_MOST = 14e-3, HALF_A_TURN = 60.0 / 7200 / 2;
/* So far behind the head is waited for rather than moved to. */
static const off_t PASSED = 1 << 20;

static int image;
static off_t length;
static double rate;

/* Where the head is, and when it is free: in seconds of the monotonic clock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static off_t head;
static double free_at;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Has the head do a request, and waits until it is done. */
static void serve(off_t offset, size_t size) {
    pthread_mutex_lock(&lock);
    double takes = size / rate;
    off_t gap = offset - head;
    if (gap >= 0 && gap < PASSED) takes += gap / rate;
    else takes += SEEK_LEAST + (SEEK_MOST - SEEK_LEAST) * sqrt(fabs((double)gap) / length) + HALF_A_TURN;
    double begins = now();
    if (free_at > begins) begins = free_at;
    double done = free_at = begins + takes;
    head = offset + size;
    pthread_mutex_unlock(&lock);
    struct timespec until = {.tv_sec = (time_t)done, .tv_nsec = (done - (time_t)done) * 1e9};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
}

static struct stat attributes(fuse_ino_t ino) {
    struct stat st = {.st_ino = ino, .st_nlink = 1, .st_mode = S_IFDIR | 0755};
    if (ino == DISK) st.st_mode = S_IFREG | 0600, st.st_size = length, st.st_blocks = length / 512, st.st_blksize = 4096;
    return st;
}

static void disk_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    if (parent != FUSE_ROOT_ID || strcmp(name, "disk")) return (void)fuse_reply_err(req, ENOENT);
    struct fuse_entry_param entry = {.ino = DISK, .attr = attributes(DISK), .attr_timeout = 1e6, .entry_timeout = 1e6};
    fuse_reply_entry(req, &entry);
}

static void disk_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)fi;
    struct stat st = attributes(ino);
    fuse_reply_attr(req, &st, 1e6);
}

static void disk_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    if (ino != DISK) return (void)fuse_reply_err(req, EISDIR);
    fi->direct_io = 1;
    fuse_reply_open(req, fi);
}

static void disk_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi) {
    (void)ino, (void)fi;
    char *buffer = malloc(size);
    if (!buffer) return (void)fuse_reply_err(req, ENOMEM);
    ssize_t had = pread(image, buffer, size, offset);
    int error = errno;
    serve(offset, size);
    if (had < 0) fuse_reply_err(req, error);
    else fuse_reply_buf(req, buffer, had);
    free(buffer);
}

static void disk_write(fuse_req_t req, fuse_ino_t ino, const char *buffer, size_t size, off_t offset, struct fuse_file_info *fi) {
    (void)ino, (void)fi;
    ssize_t had = pwrite(image, buffer, size, offset);
    int error = errno;
    serve(offset, size);
    if (had < 0) fuse_reply_err(req, error);
    else fuse_reply_write(req, had);
}

static void disk_fsync(fuse_req_t req, fuse_ino_t ino, int data, struct fuse_file_info *fi) {
    (void)ino, (void)data, (void)fi;
    fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops operations = {
    .lookup = disk_lookup, .getattr = disk_getattr, .open = disk_open, .read = disk_read, .write = disk_write, .fsync = disk_fsync,
};

int main(int argc, char **argv) {
    struct stat st;
    if (argc != 4) return fprintf(stderr, "usage: spindle IMAGE MOUNT RATE_MBS\n"), 2;
    if ((image = open(argv[1], O_RDWR | O_CLOEXEC)) < 0 || fstat(image, &st)) return perror(argv[1]), 1;
    length = st.st_size, rate = atof(argv[3]) * 1e6;
    char *words[] = {argv[0], "-o", "allow_other,fsname=spindle"};
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
