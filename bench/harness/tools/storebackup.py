"""storeBackup, with and without lateLinks. With them, the completion that makes such a backup whole is counted in."""

from ..machine import first_line
from .base import Tool


class StoreBackup(Tool):
    name = "storebackup"
    program = "storeBackup"
    needs = ("storeBackupRecover", "storeBackupUpdateBackup")
    compresses = True
    note = "a file each, compressed by bzip2 unless its name says that it is already"
    late = ""

    @classmethod
    def version(cls):
        return first_line("storeBackup --print 2>&1 | grep -i version || dpkg-query -W -f='storebackup ${Version}' storebackup")

    def backup(self, step):
        run = f"storeBackup --sourceDir {self.source} --backupDir {self.repo} --lockFile {self.home}/lock {self.late}"
        return f"{run} && storeBackupUpdateBackup --backupDir {self.repo}" if self.late else run

    def restore(self, step):
        nth = f"$(ls -d {self.repo}/default/2* | sed -n {step}p)"
        return f"storeBackupRecover --restoreTree {nth} --targetDir {self.out}"

    def landing(self, step):
        return self.place.out


class LateLinks(StoreBackup):
    name, of = "storebackup-late", "storebackup"
    late = "--lateLinks"
    note = "with --lateLinks and, counted in, storeBackupUpdateBackup"


ROWS = [StoreBackup, LateLinks]
