"""Plug-ins of engines, as installed packages announce them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.api import CbbenchError
from engines.registry import installed_engines


def announce(folder: Path, package: str, *points: str) -> None:
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[cbbench.engines]", *points]))


def test_two_packages_that_announce_one_name_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    announce(tmp_path, "swift", "quick = engines.catalogue:STATIC")
    announce(tmp_path, "rapid", "quick = engines.catalogue:DYNAMIC")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CbbenchError, match="'quick'") as told:
        installed_engines()
    assert "swift (engines.catalogue:STATIC)" in str(told.value)
    assert "rapid (engines.catalogue:DYNAMIC)" in str(told.value)


def test_a_package_may_announce_several_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    points = ["quick = engines.catalogue:STATIC", "slow = engines.catalogue:DYNAMIC"]
    announce(tmp_path, "swift", *points)
    monkeypatch.syspath_prepend(tmp_path)
    names = list(installed_engines())
    assert {"quick", "slow", "static"} <= set(names)
    assert names == sorted(names)
