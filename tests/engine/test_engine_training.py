import torch

from archloom.data.augment import Augment
from archloom.data.loader import Batch, Loader
from archloom.data.source import InMemory
from archloom.engine.training import StandaloneScore, accuracy_of, seeded
from archloom.spaces import Nb201

SPACE = Nb201(nodes=2, cells_per_stage=1)


def bright_halves(count: int) -> InMemory:
    labels = torch.arange(count) % 2
    images = 0.3 * torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images[labels == 0, :, :4] += 1.0
    images[labels == 1, :, 4:] += 1.0
    return InMemory(images, labels)


def make(epochs: int, seed: int = 0) -> StandaloneScore:
    source = bright_halves(96)

    def loader(indices, **options) -> Loader:
        return Loader(source, indices, batch_size=16, mean=(0.0,), std=(1.0,), augment=Augment(), seed=0, **options)

    return StandaloneScore(
        SPACE,
        train=loader(torch.arange(64)),
        valid=loader(torch.arange(64, 96), drop_last=False),
        epochs=epochs,
        seed=seed,
        classes=2,
        colours=1,
        device=torch.device("cpu"),
        network={"channels": 4},
        weights={"learning_rate": 0.05},
    )


CELL = SPACE.parse("|nor_conv_3x3~0|")


def test_training_learns_what_can_be_learned():
    assert make(epochs=8)(CELL) > 90.0


def test_a_score_can_be_had_again_and_depends_on_the_seed():
    first, again, other = make(1)(CELL), make(1)(CELL), make(1, seed=1)
    assert first == again
    weights = [make(1).fit(CELL).state_dict(), other.fit(CELL).state_dict()]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_accuracy_counts_images_and_uses_running_statistics():
    class Network(torch.nn.Module):
        def forward(self, images):
            assert not self.training
            return torch.nn.functional.one_hot(images[:, 0].long(), 3).float()

    network = Network()
    batches = [
        Batch(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 1])),
        Batch(torch.tensor([[2.0]]), torch.tensor([2])),
    ]
    assert accuracy_of(network, iter(batches)) == 0.75
    assert network.training


def test_seeded_gives_the_global_generator_back_as_it_was():
    before = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(2)
    assert torch.equal(before, torch.get_rng_state())
    with seeded(3):
        assert torch.equal(first, torch.rand(2))
