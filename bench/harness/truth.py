"""What a restore must give back: written down before a backup, held against what was restored."""

from . import manifest


class Truth:
    """Of a workload and its tree; `work`: where it is written down."""

    def __init__(self, workload, work):
        self.workload, self.work, self.expected = workload, work, {}

    def write_down(self, number, tree):
        """Keeps what a restore of a step must give back: once, where changes always make the same."""
        if number not in self.workload.restored():
            return
        if self.workload.stream:
            self.expected[number] = self.workload.fingerprint()
        elif number not in self.expected or not self.workload.same:
            self.expected[number] = self.work / f"manifest-{number}"
            manifest.write(tree, self.expected[number])

    def hold_against(self, tool, number, figures):
        """Notes in the figures of a restore whether it gave back what was there."""
        if self.workload.stream:
            if not self.workload.sound(tool.place.out / "stream", self.expected[number]):
                figures.update(status="wrong", output="the dump that was given back is not that database")
            return
        landing = tool.landing(number)
        if not landing.exists():
            figures.update(status="wrong", output=f"nothing was restored to {landing.relative_to(tool.place.root)}")
            return
        figures["check"] = check = manifest.compare(self.expected[number], landing)
        if check["wrong"]:
            figures.update(status="wrong", output=f"{check['wrong']} entries are not as they were, such as {check['first']}")

    def forget(self):
        """Removes what was written down."""
        for file in self.work.glob("manifest-*"):
            file.unlink()
