"""duplicity: an archive of all, then archives of differences; gzip and GnuPG by itself."""

from .base import Tool


class Duplicity(Tool):
    name = program = "duplicity"
    needs = ("gpg",)
    compresses = encrypts = far = True

    def settings(self):
        return {"PASSPHRASE": "x", "GNUPGHOME": f"{self.place.home}/gnupg"}

    def start(self):
        (self.place.home / "gnupg").mkdir(mode=0o700)

    @property
    def url(self):
        return self.there("sftp://{host}/{path}", f"file://{self.repo}")

    def init(self):
        # Folders that are missing on a server it makes itself.
        return None if self.place.server else super().init()

    def backup(self, step):
        # When it began is how a restore names it.
        return f"duplicity --no-print-statistics {self.source} {self.url} && date +%s > {self.home}/step{step}"

    def restore(self, step):
        return f"duplicity restore --time $(cat {self.home}/step{step}) {self.url} {self.out}/tree"

    def landing(self, step):
        return self.place.out / "tree"


ROWS = [Duplicity]
