"""Which user PostgreSQL runs as, where its data then are, and that nothing outside that place changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from notifier import embedded
from notifier.domain.errors import NotReady
from notifier.embedded import place as places
from notifier.embedded import process as processes
from tests.support.servers import remove_data

# Not marked `database`: half of it is skipped wherever it runs, and must be.
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="about what happens as root")
ROOT = Path(__file__).parents[2]


async def start(data_dir: Path) -> embedded.Server:
    return await embedded.start_postgres(data_dir, durable=False)


@as_root
async def test_as_root_everything_is_in_one_private_place_of_the_other_account(data_dir: Path) -> None:
    server = await start(data_dir)
    place = places.find_place(data_dir)
    assert place.account is not None
    assert psutil.Process(server.pid).uids().real == place.account.uid
    assert place.root.parent == places.SHARED
    assert _owner_and_mode(place.root) == (0, 0o711)
    assert _owner_and_mode(place.data) == (place.account.uid, 0o700)
    assert {path.name for path in place.root.iterdir() if path.lstat().st_uid != 0} == {"data"}
    assert places.find_place(_made(data_dir.with_name("other"))).root != place.root
    await embedded.stop(server)
    remove_data(data_dir.with_name("other"))


@as_root
async def test_as_root_programs_nobody_can_reach_are_copied_and_nothing_else_changes(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = places.find_wheel()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in (wheel.name, f"{wheel.name}.libs"):
        if wheel.with_name(name).is_dir():
            shutil.copytree(wheel.with_name(name), closed / name)
    monkeypatch.setattr(places, "find_wheel", lambda: closed / wheel.name)
    server = await start(data_dir)
    program = Path(psutil.Process(server.pid).exe())
    assert program.is_relative_to(places.SHARED)
    around = [path for path in (program, *program.parents) if path.is_relative_to(places.SHARED)]
    assert {path.lstat().st_uid for path in around} == {0}  # the account can neither alter nor replace it
    assert not [path for path in around if path != places.SHARED and path.lstat().st_mode & 0o022]
    assert closed.stat().st_mode & 0o777 == 0o700
    await embedded.stop(server)


@as_root
@pytest.mark.parametrize("trap", ["symlink", "other owner", "its own", "open"])
async def test_as_root_a_place_that_somebody_prepared_is_refused(data_dir: Path, tmp_path: Path, trap: str) -> None:
    root = places._shared_root(_made(data_dir), places.SHARED)
    try:
        if trap == "symlink":
            root.symlink_to(tmp_path)
        else:
            root.mkdir()
            os.chown(root, {"other owner": 4242, "its own": places._account(root).uid, "open": 0}[trap], -1)
            root.chmod(0o733 if trap == "open" else 0o700)
        with pytest.raises(NotReady, match="is not what was left there"):
            await start(data_dir)
    finally:
        root.unlink() if root.is_symlink() else root.rmdir()


@as_root
async def test_as_root_a_directory_that_was_moved_is_not_begun_anew(data_dir: Path) -> None:
    server = await start(data_dir)
    await embedded.stop(server)
    moved = data_dir.with_name("moved")
    shutil.copytree(data_dir, moved)
    with pytest.raises(NotReady, match="was moved or copied"):
        await start(moved)


@as_root
async def test_as_root_removing_the_directory_begins_anew_and_keeps_the_old_data_aside(data_dir: Path) -> None:
    first = await start(data_dir)  # and it still runs when its DATA_DIR goes
    root = places.find_place(data_dir).root
    shutil.rmtree(data_dir)
    second = await start(data_dir)
    assert not embedded.alive(first)
    assert second.url != first.url
    assert (root / "data.aside" / "PG_VERSION").exists()
    await embedded.stop(second)


def test_an_ordinary_user_needs_no_other_place() -> None:
    user, python = _ordinary_user()
    home = Path(tempfile.mkdtemp(prefix="notifier-ordinary-"))
    os.chown(home, user, user) if os.geteuid() == 0 else None
    script = (
        "import asyncio, sys, pathlib\n"
        "from notifier import embedded\n"
        "async def main():\n"
        "    path = pathlib.Path(sys.argv[1])\n"
        "    servers = [await embedded.start_postgres(path, durable=False), await embedded.start_valkey(path)]\n"
        "    print((path / 'postgres' / 'data' / 'PG_VERSION').exists(), path.stat().st_mode & 0o777 == 0o700)\n"
        "    for server in servers: await embedded.stop(server)\n"
        "asyncio.run(main())\n"
    )
    try:
        done = subprocess.run(
            [*python, "-W", "error", "-c", script, home / "data"],
            capture_output=True,
            text=True,
            cwd=home,
            env={"PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if "site-packages" in path)])},
            timeout=60,
            **({"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}),
        )
        assert (done.stdout, done.stderr) == ("True True\n", "")
    finally:
        shutil.rmtree(home)


def _ordinary_user() -> tuple[int, list[str]]:
    """A user id, and a Python that it can start: as root ours may be out of its reach."""
    if os.geteuid() != 0:
        return os.geteuid(), [sys.executable]
    for python in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        try:
            subprocess.run(
                [python, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import psutil, notifier", ROOT],
                user=65534,
                group=65534,
                extra_groups=[],
                check=True,
                cwd="/",
                capture_output=True,
                env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if "site-packages" in path)},
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return 65534, [python]
    pytest.skip("no Python here that an ordinary user could start")


@as_root
async def test_as_root_nothing_is_given_away_by_a_name_that_could_be_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_away: list[str] = []
    monkeypatch.setattr(os, "chown", lambda *_, **__: pytest.fail("by name"))
    monkeypatch.setattr(os, "fchown", lambda fd, uid, gid: given_away.append(os.readlink(f"/proc/self/fd/{fd}")))
    (tmp_path / "file").symlink_to(tmp_path / "victim")
    processes.write_private(tmp_path / "file", "secret", owner=processes.Account("nobody", 65534, 65534))
    assert given_away == [f"{tmp_path / 'file'}.{os.getpid()}.new"]
    assert not (tmp_path / "victim").exists()
    assert (tmp_path / "file").read_text() == "secret"


def _owner_and_mode(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, found.st_mode & 0o777


def _made(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path
