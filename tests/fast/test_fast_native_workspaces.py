"""Memory on loan is used again, and never by two at once."""

from __future__ import annotations

import torch
from torch import Tensor

from archloom.fast.native.workspaces import Workspaces


class Maker:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, floats: int) -> Tensor:
        self.sizes.append(floats)
        return torch.zeros(floats)


def test_memory_that_came_back_is_lent_again() -> None:
    make = Maker()
    workspaces = Workspaces(make)
    for floats in (80, 80, 75, 80):
        workspace = workspaces.lend(floats)
        del workspace
    assert make.sizes == [80]


def test_loans_at_the_same_time_differ_and_the_last_that_came_back_is_kept() -> None:
    make = Maker()
    workspaces = Workspaces(make)
    loans = [workspaces.lend(floats) for floats in (4, 9, 6)]
    addresses = [loan.cut((4,))[0].data_ptr() for loan in loans]
    assert len(set(addresses)) == 3
    while loans:
        del loans[0]
    assert workspaces.lend(6).cut((6,))[0].data_ptr() == addresses[2]
    assert make.sizes == [4, 9, 6]


def test_memory_of_another_size_is_made_anew() -> None:
    make = Maker()
    workspaces = Workspaces(make)
    for floats in (30, 70, 30):  # too small, then so large that a measurement of memory would be wrong
        workspaces.lend(floats)
    assert make.sizes == [30, 70, 30]


def test_parts_lie_one_after_another() -> None:
    workspace = Workspaces(Maker()).lend(20)
    first, second = workspace.cut((2, 3), (8,))
    first.fill_(1)
    second.fill_(2)
    assert first.shape == (2, 3) and second.shape == (8,)
    assert workspace.cut((14,))[0].tolist() == [1.0] * 6 + [2.0] * 8
