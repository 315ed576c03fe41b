"""The recurrent language model: formulas, counts, masks, carried state, and path against standalone network."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.core.errors import SettingError
from archloom.families import build_network
from archloom.families.recurrent import RecurrentNetwork, VariationalDropout
from archloom.objectives.cost import CostTable
from archloom.spaces import NONE, Architecture, Recurrent
from archloom.supernet import EveryOption, Gate, Gates, Only, inherit, path_gates
from archloom.tasks import TextShape

DRY = {
    "dropout_output": 0.0,
    "dropout_hidden": 0.0,
    "dropout_input": 0.0,
    "dropout_embedding": 0.0,
    "dropout_words": 0.0,
    "change_penalty": 0.0,
}
ALL = Recurrent(nodes=4)
CELL = ALL.parse("Genotype(recurrent=[('tanh', 0), ('relu', 1), ('sigmoid', 0), ('identity', 2)], concat=range(1, 5))")
F_OF = {
    "tanh": math.tanh,
    "relu": lambda u: max(u, 0.0),
    "sigmoid": lambda u: 1 / (1 + math.exp(-u)),
    "identity": float,
}


def make(
    space: Recurrent = ALL,
    architecture: Architecture | None = None,
    *,
    words: int = 7,
    hidden: int = 6,
    spread: float = 0.6,
    **settings: object,
) -> RecurrentNetwork:
    resolve = EveryOption() if architecture is None else Only(architecture)
    torch.manual_seed(0)
    network = build_network(space, resolve, TextShape(words), hidden=hidden, **{**DRY, **settings}).double()
    assert isinstance(network, RecurrentNetwork)
    with torch.no_grad():  # larger weights than the usual ones: activations must differ clearly
        for parameter in network.parameters():
            parameter.uniform_(-spread, spread)
    return network


def text(rows: int, columns: int = 3, words: int = 7, seed: int = 0) -> Tensor:
    return torch.randint(words, (rows, columns), generator=torch.Generator().manual_seed(seed))


def mixture(space: Recurrent = ALL, seed: int = 0) -> Gates:
    generator = torch.Generator().manual_seed(seed)
    rows = {d.name: torch.randn(len(d.options), generator=generator, dtype=torch.float64) for d in space.decisions}
    return {name: Gate(weights=(2 * row).softmax(0).requires_grad_()) for name, row in rows.items()}


# --- T1: the formula


def by_hand(network: RecurrentNetwork, words: Tensor, *, swapped: bool = False) -> list[list[list[float]]]:
    """Return the outputs [T][B][H] by loops over plain numbers."""
    size = network.hidden
    embedding, start, nodes = network.embedding.tolist(), network.start.tolist(), network.nodes.tolist()

    def halves(row: list[float]) -> tuple[list[float], list[float]]:
        return (row[size:], row[:size]) if swapped else (row[:size], row[size:])

    outputs, last = [], [[0.0] * size for _ in range(words.shape[1])]
    for line in words.tolist():
        for column, word in enumerate(line):
            both = embedding[word] + last[column]
            gate, candidate = halves([sum(both[i] * start[i][k] for i in range(2 * size)) for k in range(2 * size)])
            states = [
                [
                    h + F_OF["sigmoid"](c) * (math.tanh(u) - h)
                    for h, c, u in zip(last[column], gate, candidate, strict=True)
                ]
            ]
            for number, node in enumerate(ALL.read_nodes(CELL)):
                assert node is not None
                activation, source = node
                read, matrix = states[source], nodes[number]
                product = [sum(read[i] * matrix[i][k] for i in range(size)) for k in range(2 * size)]
                gate, candidate = halves(product)
                states.append(
                    [
                        s + F_OF["sigmoid"](c) * (F_OF[activation](u) - s)
                        for s, c, u in zip(read, gate, candidate, strict=True)
                    ]
                )
            last[column] = [sum(state[k] for state in states[1:]) / len(states[1:]) for k in range(size)]
        outputs.append([list(row) for row in last])
    return outputs


def test_a_cell_computes_its_formula() -> None:
    network, words = make(architecture=CELL, hidden=3), text(2, columns=2)
    logits = network(words).logits
    wanted = torch.tensor(by_hand(network, words), dtype=torch.float64)
    decoded = F.linear(wanted.flatten(0, 1), network.embedding, network.decoder_bias)
    torch.testing.assert_close(logits, decoded, rtol=0, atol=1e-12)
    torch.testing.assert_close(network(words).state, wanted[-1], rtol=0, atol=1e-12)
    other = torch.tensor(by_hand(network, words, swapped=True), dtype=torch.float64)
    assert float((other - wanted).abs().max()) > 1e-2  # gate and candidate are not interchangeable


# --- T2: counts


@pytest.mark.parametrize(
    ("words", "hidden", "nodes", "parameters"),
    [
        (10_000, 850, 8, 22_960_000),
        (33_278, 700, 8, 33_127_878),
        (10_000, 300, 8, 4_810_000),
        (10_000, 850, 11, 27_295_000),
        (33_278, 700, 11, 36_067_878),
        (2_000, 64, 8, 211_920),
    ],
)
def test_supernet_and_every_cell_have_the_published_number_of_weights(
    words: int, hidden: int, nodes: int, parameters: int
) -> None:
    space = Recurrent(nodes=nodes)
    table = CostTable(space, words=words, hidden=hidden)
    cost = table.cost(space.sample(random.Random(0)))
    assert cost.parameters == parameters == words * hidden + words + (4 + 2 * nodes) * hidden**2
    assert cost.multiply_adds == (4 + 2 * nodes) * hidden**2 + words * hidden
    with torch.device("meta"):
        supernet = build_network(space, EveryOption(), TextShape(words), hidden=hidden)
    assert sum(parameter.numel() for parameter in supernet.parameters()) == parameters


# --- T4: a path is a standalone network


@pytest.mark.parametrize("normalize", ["none", "batch"])
def test_a_path_computes_what_the_standalone_network_computes(normalize: str) -> None:
    for seed in range(4):
        cell = ALL.sample(random.Random(seed))
        supernet, alone = make(normalize=normalize), make(architecture=cell, normalize=normalize)
        inherit(alone, supernet)
        states: list[Tensor | None] = [None, None]
        for segment in range(2):
            words = text(7, seed=segment)
            found = supernet(words, path_gates(ALL, cell), states[0]), alone(words, None, states[1])
            torch.testing.assert_close(found[0].logits, found[1].logits, rtol=0, atol=1e-12)
            torch.testing.assert_close(found[0].state, found[1].state, rtol=0, atol=1e-12)
            states = [one.state.detach() for one in found]
        for one in (supernet, alone):
            one.zero_grad()
        for one in found:
            F.cross_entropy(one.logits, text(7, seed=9).flatten()).backward()
        for mine, theirs in zip(supernet.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-12)


def test_normalisation_makes_a_difference_and_is_the_supernets() -> None:
    supernet, alone = make(), make(architecture=CELL)
    inherit(alone, supernet)
    words = text(7)
    assert float((supernet(words, path_gates(ALL, CELL)).logits - alone(words).logits).abs().max()) > 1e-1


def test_loose_ends_alone_are_averaged_where_the_space_says_so() -> None:
    space = Recurrent(nodes=3, output="loose_ends")
    cell = space.parse("Genotype(recurrent=[('tanh', 0), ('relu', 1), ('tanh', 1)], concat=[2, 3])")
    supernet, alone = make(space, normalize="none"), make(space, cell)
    inherit(alone, supernet)
    everything = make(Recurrent(nodes=3), Recurrent(nodes=3).check(dict(cell)))
    inherit(everything, supernet)
    words = text(3)
    torch.testing.assert_close(supernet(words, path_gates(space, cell)).logits, alone(words).logits)
    assert float((everything(words).logits - alone(words).logits).abs().max()) > 1e-3


# --- T5: the mixture


def by_double_loop(network: RecurrentNetwork, words: Tensor, gates: Gates, *, normalized: bool) -> Tensor:
    """Return the outputs of a mixture as a sum over states and activations, one product for each."""
    activations = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid, "identity": lambda u: u}
    size, outputs = network.hidden, []

    def norm(state: Tensor) -> Tensor:
        centred = state - state.mean(dim=0)
        return centred / (centred.square().mean(dim=0) + 1e-5).sqrt() if normalized else state

    last = torch.zeros(words.shape[1], size, dtype=torch.float64)
    for line in words:
        gate, candidate = (torch.cat([network.embedding[line], last], dim=1) @ network.start).split(size, dim=1)
        states = [norm(last + gate.sigmoid() * (candidate.tanh() - last))]
        for node in range(1, ALL.nodes + 1):
            total = torch.zeros_like(last)
            for source, read in enumerate(states):
                weights = gates[ALL.edge_name(source, node)].weights
                assert weights is not None
                for share, option in zip(weights, ALL.decisions[0].options, strict=True):
                    if option != NONE:
                        gate, candidate = (read @ network.nodes[node - 1]).split(size, dim=1)
                        total = total + share * (read + gate.sigmoid() * (activations[option](candidate) - read))
            states.append(norm(total))
        last = torch.stack(states[1:]).mean(dim=0)
        outputs.append(last)
    return torch.stack(outputs)


@pytest.mark.parametrize("normalize", ["none", "batch"])
def test_a_mixture_is_the_sum_over_states_and_activations(normalize: str) -> None:
    network, words, gates = make(normalize=normalize), text(4), mixture()
    leaves = [gate.weights for gate in gates.values()]
    wanted = by_double_loop(network, words, gates, normalized=normalize == "batch")
    found = network(words, gates)
    decoded = F.linear(wanted.flatten(0, 1), network.embedding, network.decoder_bias)
    torch.testing.assert_close(found.logits, decoded, rtol=0, atol=1e-12)
    targets = text(4, seed=5).flatten()
    mine = torch.autograd.grad(F.cross_entropy(found.logits, targets), [*network.parameters(), *leaves])
    theirs = torch.autograd.grad(F.cross_entropy(decoded, targets), [*network.parameters(), *leaves])
    for one, two in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)


def test_a_node_of_nones_is_zero_and_a_sigmoid_of_it_is_not() -> None:
    space = Recurrent(nodes=2, output="loose_ends")
    closed = Architecture({"0->1": NONE, "0->2": NONE, "1->2": "sigmoid"})
    network = make(space, closed, hidden=2)
    torch.testing.assert_close(network(text(1)).state, torch.full((3, 2), 0.25, dtype=torch.float64))
    both = make(Recurrent(nodes=2), closed, hidden=2)  # the zero counts in the mean
    torch.testing.assert_close(both(text(1)).state, torch.full((3, 2), 0.125, dtype=torch.float64))
    one_hot = torch.eye(5, dtype=torch.float64)
    mixed = {"0->1": Gate(weights=one_hot[0]), "0->2": Gate(weights=one_hot[0]), "1->2": Gate(weights=one_hot[3])}
    supernet = make(Recurrent(nodes=2), hidden=2, normalize="none")
    torch.testing.assert_close(supernet(text(1), mixed).state, torch.full((3, 2), 0.125, dtype=torch.float64))


# --- T6: the carried state


def test_two_segments_in_turn_are_one_of_twice_the_length() -> None:
    network, words = make(architecture=CELL), text(10)
    whole = network(words)
    first = network(words[:5])
    second = network(words[5:], None, first.state.detach())
    torch.testing.assert_close(torch.cat([first.logits, second.logits]), whole.logits, rtol=0, atol=1e-12)
    torch.testing.assert_close(second.state, whole.state, rtol=0, atol=1e-12)
    forgotten = network(words[5:])
    assert float((forgotten.logits - second.logits).abs().max()) > 1e-2


# --- T7: masks


def test_one_mask_serves_the_last_output_and_all_nodes_at_all_times(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make(architecture=CELL, dropout_hidden=0.5, hidden=40)
    drawn: list[tuple[int, ...]] = []
    draw = VariationalDropout.draw

    def record(self: VariationalDropout, like: Tensor, *shape: int) -> Tensor | None:
        mask = draw(self, like, *shape)
        if mask is not None:
            drawn.append(tuple(mask.shape))
        return mask

    monkeypatch.setattr(VariationalDropout, "draw", record)
    network(text(6))
    assert drawn == [(3, 40)]  # columns and numbers: none for time, none for nodes
    network.eval()
    network(text(6))
    assert drawn == [(3, 40)]  # evaluation draws nothing


def test_a_mask_drops_where_a_matrix_multiplies_and_not_in_the_highway() -> None:
    network, words = make(architecture=CELL, dropout_hidden=0.5, hidden=4), text(3)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        found = network(words).state
        torch.manual_seed(3)
        mask = F.dropout(torch.ones(3, 4, dtype=torch.float64), 0.5)
    activations = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid, "identity": lambda u: u}
    last = torch.zeros(3, 4, dtype=torch.float64)
    for line in words:
        gate, candidate = (torch.cat([network.embedding[line], last * mask], dim=1) @ network.start).chunk(2, dim=1)
        states = [last + gate.sigmoid() * (candidate.tanh() - last)]
        for number, node in enumerate(ALL.read_nodes(CELL)):
            assert node is not None
            read = states[node[1]]
            gate, candidate = ((read * mask) @ network.nodes[number]).chunk(2, dim=1)
            states.append(read + gate.sigmoid() * (activations[node[0]](candidate) - read))
        last = torch.stack(states[1:]).mean(dim=0)
    torch.testing.assert_close(found, last, rtol=0, atol=1e-12)


def test_word_dropout_zeroes_every_occurrence_of_a_word() -> None:
    network = make(architecture=CELL, dropout_words=0.5, words=30)
    words = torch.arange(30).repeat(2)[:, None]
    embedded = network._embed(words)
    zero = embedded.abs().sum(dim=(1, 2)) == 0
    assert torch.equal(zero[:30], zero[30:]) and 5 < int(zero[:30].sum()) < 25
    kept = embedded[:30][~zero[:30], 0]
    torch.testing.assert_close(kept, 2 * network.embedding[~zero[:30]])  # scaled by 1 / (1 - p)


def test_masks_keep_the_expectation() -> None:
    drop = VariationalDropout(0.25)
    torch.manual_seed(0)
    mask = drop.draw(torch.ones(1), 20_000, 1)
    assert mask is not None and abs(float(mask.mean()) - 1) < 0.02


# --- T8: tied weights


def test_the_gradient_of_the_embedding_is_the_sum_of_both_uses() -> None:
    network, words, targets = make(architecture=CELL), text(4), text(4, seed=1).flatten()
    (whole,) = torch.autograd.grad(F.cross_entropy(network(words).logits, targets), [network.embedding])
    outputs = network._read(network._fixed, words, None)  # type: ignore[arg-type]
    decoder = network.embedding.detach().clone().requires_grad_()
    loss = F.cross_entropy(F.linear(outputs.flatten(0, 1), decoder, network.decoder_bias), targets)
    read, decoded = torch.autograd.grad(loss, [network.embedding, decoder])
    torch.testing.assert_close(whole, read + decoded, rtol=0, atol=1e-12)
    assert float(read.abs().max()) > 0 and float(decoded.abs().max()) > 0
    shapes = [tuple(value.shape) for value in network.state_dict().values()]
    assert shapes.count((7, 6)) == 1  # one entry in a file


# --- T9: penalties


def test_penalties_have_their_closed_form() -> None:
    network = make(architecture=CELL, activation_penalty=2.0, change_penalty=3.0)
    rising = torch.arange(4.0)[:, None, None].expand(4, 3, 6) * 0.5  # by 0.5 a step
    shown = torch.full((4, 3, 6), 0.25)
    assert float(network._penalty(rising, shown)) == pytest.approx(2 * 0.25**2 + 3 * 0.5**2)
    assert float(network._penalty(rising[:1], shown)) == pytest.approx(2 * 0.25**2)
    assert float(network.eval()._penalty(rising, shown)) == 0


# --- gradients through time


def test_gradients_through_time_agree_with_differences() -> None:
    network, words, gates = make(hidden=3, normalize="batch"), text(6, columns=4), mixture()
    targets = text(6, columns=4, seed=2).flatten()
    state = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def loss() -> Tensor:
        return F.cross_entropy(network(words, gates, state).logits, targets)

    for parameter in (network.start, network.nodes, network.embedding):
        (gradient,) = torch.autograd.grad(loss(), [parameter])
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            parameter += 1e-6 * direction
            above = float(loss())
            parameter -= 2e-6 * direction
            below = float(loss())
            parameter += 1e-6 * direction
        assert (above - below) / 2e-6 == pytest.approx(float((gradient * direction).sum()), rel=1e-5, abs=1e-8)


# --- bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 1}, "network.hidden must lie in 2..65536, got 1"),
        ({"dropout_hidden": 1.0}, r"network.dropout_hidden must lie in \[0, 1\), got 1.0"),
        ({"change_penalty": -1.0}, "network.change_penalty must be 0 or more, got -1.0"),
        ({"normalize": "layer"}, "network.normalize must be 'auto', 'batch' or 'none', got 'layer'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build_network(ALL, EveryOption(), TextShape(5), **settings)


def test_a_path_for_every_sequence_is_refused() -> None:
    gates = {d.name: Gate(index=torch.zeros(3, dtype=torch.int64), weights=torch.ones(3, 5)) for d in ALL.decisions}
    with pytest.raises(SettingError, match=r"strategy\.sampling = 'batch'"):
        make()(text(2), gates)
