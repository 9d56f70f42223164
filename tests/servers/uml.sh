# shellcheck shell=bash
# uml.sh: a user-mode Linux kernel (a plain process) for file systems that the machine's own kernel hasn't. Sourced by scripts, never run.
#
# A script defines, besides server_install,
#   uml_needs     the commands that it needs
#   uml_mount     what the first process in there does, as a text: it ends by mounting what is to be tried, with status 0
#   uml_unmount   and how that is taken away, as a text
# and calls: uml_main PLACE "$@", PLACE being where the mount is in there.
#
# In there the machine's files are seen read-only, DIR can be written, /run is in memory, and /run/export is an ext4 of $SIZE (4G, sparse).
# One processor, $MEMORY (1G); system calls cost several times more than outside: no place to measure speed. Run as root.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

UML_PACKAGES=(user-mode-linux kmod e2fsprogs procps util-linux)

server_start() {
  local version
  # shellcheck disable=SC2046
  need linux.uml modprobe mkfs.ext4 $(uml_needs)
  ((EUID == 0)) || die 'run as root'
  version=$(basename "$(find /usr/lib/uml/modules -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)")
  mkdir -p "$DIR/modules/lib/modules" "$DIR/jobs" "$DIR/log"
  rm -rf "$DIR/jobs"/* "$DIR/ready"
  ln -sfn "/usr/lib/uml/modules/$version" "$DIR/modules/lib/modules/$version"
  if [[ ! -e $DIR/disk ]]; then
    truncate -s "${SIZE:-4G}" "$DIR/disk"
    mkfs.ext4 -q -E lazy_itable_init=1 "$DIR/disk"
  fi
  init >"$DIR/init"
  chmod 755 "$DIR/init"
  spawn uml linux.uml "mem=${MEMORY:-1G}" rootfstype=hostfs rootflags=/ ro "ubd0=$DIR/disk" \
    con=null con0=null,fd:1 quiet "init=$DIR/init"
  until_ready uml 60 test -e "$DIR/ready"
  out MOUNT "$place"
  out RUN "$here/$me run $DIR"
  out PID "$pid"
}

server_stop() {
  local i
  if [[ -z ${FAST:-} ]] && running; then
    touch "$DIR/jobs/halt"
    for ((i = 0; i < 100; i++)); do
      running || break
      sleep 0.1
    done
  fi
  stop_all
}

# init: the first process in there. Jobs come as files, since the host's file
# system is all that both sides see.
init() {
  printf '#!/bin/bash\nDIR=%q\n' "$DIR"
  cat <<'EOF'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
{
  mount -t proc proc /proc
  mount -t sysfs sys /sys
  mount -t devtmpfs dev /dev
  mkdir -p /dev/pts /dev/shm
  mount -t devpts pts /dev/pts
  mount -t tmpfs shm /dev/shm
  mount -t tmpfs run /run
  mount -t hostfs none "$DIR" -o "$DIR"
  mkdir -p /run/export /run/home /run/tmp /run/lib
  export HOME=/run/home TMPDIR=/run/tmp
  ip link set lo up
  # What the kernel asks for by itself, such as ciphers.
  printf '#!/bin/sh\nexec modprobe -d "%s" "$@"\n' "$DIR/modules" >"$DIR/modprobe"
  chmod 755 "$DIR/modprobe"
  echo "$DIR/modprobe" >/proc/sys/kernel/modprobe
  modprobe -d "$DIR/modules" overlay
  mount /dev/ubda /run/export
EOF
  uml_mount
  cat <<'EOF'
  (($? != 0)) || touch "$DIR/ready"
} 2>&1
cd "$DIR"
until [[ -e jobs/halt ]]; do
  for f in jobs/*.sh; do
    [[ -e $f ]] || continue
    mv "$f" "${f%.sh}.run"
    (bash "${f%.sh}.run" >"${f%.sh}.out" 2>"${f%.sh}.err" </dev/null; echo $? >"${f%.sh}.rc.new"; mv "${f%.sh}.rc.new" "${f%.sh}.rc") &
  done
  sleep 0.05
done
EOF
  uml_unmount
  cat <<'EOF'
umount /run/export || umount -l /run/export
sync
halt -f -p
EOF
}

# run DIR COMMAND...: waits for it, passes its output and exit status on.
run_inside() {
  local job
  DIR=$(cd "$1" && pwd)
  shift
  running || die "not running in $DIR"
  job=$DIR/jobs/$$.$RANDOM
  { printf 'cd %q\n' "$DIR"; printf '%q ' "$@"; echo; } >"$job.new"
  mv "$job.new" "$job.sh"
  until [[ -s $job.rc ]]; do
    running || die 'it ended meanwhile'
    sleep 0.05
  done
  cat "$job.out"
  cat "$job.err" >&2
  return "$(<"$job.rc")"
}

uml_main() {
  place=$1
  shift
  if [[ ${1:-} == run && $# -ge 3 ]]; then
    shift
    run_inside "$@"
  else
    main "$@"
  fi
}
