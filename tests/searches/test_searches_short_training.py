import torch

from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.searches.short_training import StandaloneScore, build_standalone, seeded
from archloom.spaces import Nb201
from archloom.supernet import WeightSettings

SPACE = Nb201(nodes=2, cells_per_stage=1)


def bright_halves(count: int) -> InMemory:
    labels = torch.arange(count) % 2
    images = 0.3 * torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images[labels == 0, :, :4] += 1.0
    images[labels == 1, :, 4:] += 1.0
    return InMemory(images, labels)


def begin(architecture, seed: int = 0):
    return build_standalone(
        SPACE,
        architecture,
        seed=seed,
        place=lambda network: network,
        network={"channels": 4, "classes": 2, "colours": 1},
        weights=WeightSettings(learning_rate=0.05),
    )


def make(epochs: int, seed: int = 0, **options) -> StandaloneScore:
    source = bright_halves(96)

    def loader(indices, **options) -> Loader:
        return Loader(source, indices, batch_size=16, mean=(0.0,), std=(1.0,), augment=Augment(), seed=0, **options)

    return StandaloneScore(
        lambda architecture: begin(architecture, seed),
        train=loader(torch.arange(64)),
        valid=loader(torch.arange(64, 96), drop_last=False),
        epochs=epochs,
        **options,
    )


CELL = SPACE.parse("|nor_conv_3x3~0|")


def test_training_learns_what_can_be_learned():
    scores = list(make(epochs=8)(CELL))
    assert scores[-1].score > 90.0
    assert [scored.epochs for scored in scores] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_scores_on_the_way_do_not_change_the_last_and_can_be_left_out():
    (only,) = make(epochs=3, every_epoch=False)(CELL)
    assert only == list(make(epochs=3)(CELL))[-1]


def test_what_nobody_asks_for_any_more_is_not_trained():
    score = make(epochs=3)
    steps = []
    original = score._train.epoch
    score._train.epoch = lambda epoch: steps.append(epoch) or original(epoch)
    next(score(CELL))
    assert steps == [0]


def test_a_score_can_be_had_again_and_depends_on_the_seed():
    assert list(make(2)(CELL)) == list(make(2)(CELL))
    first, again, other = (begin(CELL, seed)._network.state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_seeded_gives_the_global_generator_back_as_it_was():
    before = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(2)
    assert torch.equal(before, torch.get_rng_state())
    with seeded(3):
        assert torch.equal(first, torch.rand(2))
