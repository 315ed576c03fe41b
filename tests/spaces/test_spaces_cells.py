"""Nodes of cells, and spaces whose cells make their own choices."""

from archloom.spaces import Darts, Mobile, Nb201


def test_nodes_name_the_decisions_that_enter_them():
    nodes = Darts(nodes=2).cell_nodes
    assert [(node.cell, node.keeps_resolution) for node in nodes] == [
        ("normal", True),
        ("normal", True),
        ("reduce", False),
        ("reduce", False),
    ]
    assert nodes[1].inputs == ("normal/0->3", "normal/1->3", "normal/2->3")
    assert [node.inputs for node in Nb201(nodes=3).cell_nodes] == [("0->1",), ("0->2", "1->2")]
    assert Mobile().cell_nodes == ()


def test_every_decision_enters_one_node():
    for space in (Darts(), Nb201(), Darts(edges="fixed"), Darts(sharing="none", cells=4), Darts(reduction="fixed")):
        entering = [name for node in space.cell_nodes for name in node.inputs]
        assert sorted(entering) == sorted(decision.name for decision in space.decisions)


def test_unshared_cells_know_the_decision_that_they_copy():
    space = Darts(cells=4)  # reductions at 1 and 2
    own, shared = space.unshare()
    assert own.sharing == "none" and len(own.decisions) == 4 * 14
    assert set(shared) == {decision.name for decision in own.decisions}
    assert [shared[f"cell{number}/1->3"] for number in range(4)] == [
        "normal/1->3",
        "reduce/1->3",
        "reduce/1->3",
        "normal/1->3",
    ]


def test_unshared_cells_keep_fewer_options_and_a_fixed_reduction():
    space = Darts(cells=4).restrict({"normal/0->2": ["skip_connect"]})
    own, _ = space.unshare()
    assert own.decision("cell3/0->2").options == ("skip_connect",)
    assert len(own.decision("cell1/0->2").options) == 8
    fixed, shared = Darts(cells=4, reduction="fixed").unshare()
    assert {name.partition("/")[0] for name in shared} == {"cell0", "cell3"}
    assert len(fixed.decisions) == 2 * 14


def test_where_nothing_is_shared_a_space_is_its_own():
    space = Nb201()
    assert space.unshare() == (space, {decision.name: decision.name for decision in space.decisions})
