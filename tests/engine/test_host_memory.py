"""Memory of the computer is what the system has, or what a control group leaves of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engine.host_memory import available_bytes

GB = 10**9


@pytest.fixture(autouse=True)
def system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=32 * GB))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_groups_it_is_the_systems(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) == 32 * GB


def test_a_limit_of_version_2_less_what_is_used_but_for_cached_files(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/user.slice/app"
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/app\n",
            f"{folder}/memory.max": f"{8 * GB}\n",
            f"{folder}/memory.current": f"{5 * GB}\n",
            f"{folder}/memory.stat": f"anon 1\nactive_file {GB}\ninactive_file {2 * GB}\nfile {3 * GB}\n",
        },
    )
    assert available_bytes(tmp_path) == 6 * GB


def test_a_parents_limit_counts_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/app\n",
            "sys/fs/cgroup/user.slice/app/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/app/memory.current": f"{GB}\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{4 * GB}\n",
            "sys/fs/cgroup/user.slice/memory.current": f"{3 * GB}\n",
        },
    )
    assert available_bytes(tmp_path) == 1 * GB


def test_a_containers_own_root(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": f"{2 * GB}\n",
            "sys/fs/cgroup/memory.current": f"{3 * GB}\n",
        },
    )
    assert available_bytes(tmp_path) == 0


def test_a_limit_of_version_1(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/docker/x"
    write(
        tmp_path,
        {
            "proc/self/cgroup": "12:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n1:name=systemd:/docker/x\n",
            f"{folder}/memory.limit_in_bytes": f"{8 * GB}\n",
            f"{folder}/memory.usage_in_bytes": f"{GB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{20 * GB}\n",
        },
    )
    assert available_bytes(tmp_path) == 7 * GB


def test_what_makes_no_sense_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "nonsense\n0::/\n", "sys/fs/cgroup/memory.max": "much\n"})
    assert available_bytes(tmp_path) == 32 * GB
