"""W1: maildirs. ~155,000 mails in 3.5 GiB at scale 1, as obnam's user had; between two backups a day's mail comes in.

Sizes follow mailboxes: seven mails of ten are a few KB of text, two have an HTML part, one in twelve carries attachments,
which hold most of the bytes; attachments are passed on in other mails.
"""

import base64
import os

from .base import EPOCH, Step, Workload, in_parallel
from .text import text, word

MAILS = 155_000
FOLDER_MAILS = 2_500
DOMAINS = ("example.org", "example.net", "lists.example.com", "mail.example.edu")
# One attachment in so many is one that was sent before, of so many that are passed on.
PASSED_ON, POOL = 6, 400


def size(rng, median, sigma, most):
    return int(min(most, median * pow(2.718281828, rng.gauss(0, sigma))))


def address(rng):
    return f"{word(rng)}.{word(rng)}@{rng.choice(DOMAINS)}"


def attachment(workload, rng):
    """The bytes of an attachment, most of them compressed already."""
    if rng.randrange(PASSED_ON) == 0:
        rng = workload.random("attachment", rng.randrange(POOL))
    length = size(rng, 45_000, 1.25, 12_000_000)
    return rng.randbytes(length) if rng.randrange(10) else text(rng, length).encode()


def mail(workload, number):
    """A mail, whole."""
    rng = workload.random("mail", number)
    when = EPOCH + rng.randrange(180 * 86400)
    subject = " ".join(word(rng) for _ in range(rng.randrange(2, 9)))
    lines = [f"Return-Path: <{address(rng)}>"]
    for hop in range(rng.randrange(1, 5)):
        lines.append(f"Received: from mx{hop}.{rng.choice(DOMAINS)} ([10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}])\n"
                     f"\tby relay{hop}.example.org with ESMTPS id {rng.getrandbits(64):x}\n\tfor <user@example.org>; {when - hop} +0000")
    lines += [f"Message-ID: <{rng.getrandbits(96):x}@{rng.choice(DOMAINS)}>", f"Date: {when} +0000", f"From: {address(rng)}",
              f"To: {address(rng)}", f"Subject: {subject}", "MIME-Version: 1.0"]
    kind = rng.random()
    body = text(rng, size(rng, 1800, 1.0, 200_000))
    if kind < 0.70:
        return "\n".join([*lines, "Content-Type: text/plain; charset=utf-8", "", body, ""]).encode()
    border = f"=_{rng.getrandbits(80):x}"
    lines += [f'Content-Type: multipart/mixed; boundary="{border}"', "", f"--{border}", "Content-Type: text/plain", "", body]
    html = text(rng, size(rng, 9000, 0.8, 300_000)).replace("\n", "</p>\n<p style=\"margin:0;font-family:sans-serif\">")
    lines += [f"--{border}", "Content-Type: text/html", "", f"<html><body><p>{html}</p></body></html>"]
    if kind >= 0.915:
        for part in range(1 + (rng.randrange(4) == 0)):
            coded = base64.encodebytes(attachment(workload, rng)).decode()
            lines += [f"--{border}", f'Content-Type: application/octet-stream; name="part{part}"', "Content-Transfer-Encoding: base64", "", coded]
    return "\n".join([*lines, f"--{border}--", ""]).encode()


def put(job):
    """Writes one mail into its maildir."""
    workload, tree, number, place = job
    rng = workload.random("name", number)
    contents = mail(workload, number)
    when = EPOCH + rng.randrange(180 * 86400)
    folder = tree / f"user{number // FOLDER_MAILS // 4:03}" / ("", ".Sent", ".Archive", ".Lists")[number // FOLDER_MAILS % 4] / place
    for name in ("cur", "new", "tmp"):
        (folder.parent / name).mkdir(parents=True, exist_ok=True)
    flags = "".join(flag for flag in "FRS" if rng.randrange(2))
    path = folder / f"{when}.M{rng.randrange(10**6)}P{rng.randrange(10**5)}.mail,S={len(contents)}:2,{flags}"
    path.write_bytes(contents)
    os.utime(path, ns=(when * 10**9, when * 10**9))
    return 1


class W1(Workload):
    name = "W1"
    title = "Maildirs"
    source = "generated from a seed: mails of text, HTML and attachments in maildirs"

    def steps(self):
        return [Step("first"), Step("no change"), Step("a day's mail", self.day)]

    def make(self, tree):
        in_parallel(put, ((self, tree, number, "cur") for number in range(self.count(MAILS))))

    def day(self, tree, rng):
        """One mail in a thousand is new, as many are read (renamed), as many deleted."""
        mails = self.count(MAILS)
        few = max(3, mails // 1000)
        for number in range(mails, mails + few):
            put((self, tree, number, "new"))
        there = sorted(tree.rglob("cur/*"))
        for path in rng.sample(there, min(2 * few, len(there)))[::2]:
            path.rename(path.with_name(path.name + "T"))
        for path in rng.sample(sorted(tree.rglob("cur/*")), few):
            path.unlink()


WORKLOADS = [W1]
