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
    for floats in (8, 8, 5, 8):
        workspace = workspaces.lend(floats)
        del workspace
    assert make.sizes == [8]


def test_loans_at_the_same_time_differ_and_the_largest_is_kept() -> None:
    make = Maker()
    workspaces = Workspaces(make)
    loans = [workspaces.lend(floats) for floats in (4, 9, 6)]
    addresses = [loan.cut((4,))[0].data_ptr() for loan in loans]
    assert len(set(addresses)) == 3
    loans.clear()
    assert workspaces.lend(9).cut((9,))[0].data_ptr() == addresses[1]
    assert make.sizes == [4, 9, 6]


def test_more_than_there_is_is_made_anew() -> None:
    make = Maker()
    workspaces = Workspaces(make)
    workspaces.lend(3)
    workspaces.lend(7)
    assert make.sizes == [3, 7]


def test_parts_lie_one_after_another() -> None:
    workspace = Workspaces(Maker()).lend(20)
    first, second = workspace.cut((2, 3), (8,))
    first.fill_(1)
    second.fill_(2)
    assert first.shape == (2, 3) and second.shape == (8,)
    assert workspace.cut((14,))[0].tolist() == [1.0] * 6 + [2.0] * 8
