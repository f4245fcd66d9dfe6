"""A real Postfix that delivers to a folder: what `apt-get install postfix` gives, with a configuration of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path

from tests.support.stack import until

PROGRAM = "/usr/sbin/postfix"
WHY_NOT = "a real mail server needs root, and Postfix: apt-get install postfix"
MAIN = """\
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file_prefixes = {folder}
maillog_file = {folder}/log
myhostname = mail.example.com
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
virtual_mailbox_domains = example.com
virtual_mailbox_maps = static:all/
virtual_mailbox_base = {folder}/mail
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{gid}
"""
MASTER = """\
127.0.0.1:{port} inet n - n - - smtpd
cleanup  unix n - n -    0 cleanup
qmgr     unix n - n 300  1 qmgr
rewrite  unix - - n -    - trivial-rewrite
bounce   unix - - n -    0 bounce
defer    unix - - n -    0 bounce
trace    unix - - n -    0 bounce
flush    unix n - n 1000? 0 flush
anvil    unix - - n -    1 anvil
virtual  unix - n n -    - virtual
error    unix - - n -    - error
retry    unix - - n -    - error
proxymap unix - - n -    - proxymap
postlog  unix-dgram n - n - 1 postlogd
"""


def is_here() -> bool:
    """Whether it can be run: it drops privileges itself, and so wants to have some."""
    return os.geteuid() == 0 and Path(PROGRAM).exists()


@dataclass(frozen=True)
class Postfix:
    """One that runs."""

    port: int
    folder: Path

    def mails(self) -> list[EmailMessage]:
        """What it has delivered."""
        found = [
            message_from_bytes(path.read_bytes(), policy=SMTP)
            for path in sorted((self.folder / "mail" / "all" / "new").glob("*"))
        ]
        assert all(isinstance(mail, EmailMessage) for mail in found)
        return found


@contextlib.asynccontextmanager
async def a_postfix(port: int) -> AsyncIterator[Postfix]:
    """Run one on a loopback port; its files are where its own user can go, and are removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="notifier-postfix-", dir="/var/tmp"))
    try:
        nobody = pwd.getpwnam("nobody")
        folder.chmod(0o755)
        for name in ("queue", "data", "mail", "etc"):
            (folder / name).mkdir()
        shutil.chown(folder / "data", "postfix")
        shutil.chown(folder / "mail", "nobody")
        (folder / "etc" / "main.cf").write_text(MAIN.format(folder=folder, uid=nobody.pw_uid, gid=nobody.pw_gid))
        (folder / "etc" / "master.cf").write_text(MASTER.format(port=port))
        assert await _postfix(folder, "start") == 0, (folder / "log").read_text()
        try:
            await until(lambda: _listens(port), "Postfix listens")
            yield Postfix(port, folder)
        finally:
            await _postfix(folder, "stop")
    finally:
        shutil.rmtree(folder)


async def _postfix(folder: Path, command: str) -> int:
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        "-c",
        str(folder / "etc"),
        command,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
