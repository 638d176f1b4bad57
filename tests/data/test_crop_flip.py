"""Augmentation: the batched code against one image at a time, with the plan's own draws."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.lengths import PhasePlan
from fedblade.core.plan import Planner
from fedblade.core.streams import Streams
from fedblade.data import Dataset, Part, apply_recipe, to_samples
from fedblade.data._augment import CropFlip
from fedblade.partitions import IID


def slow_crop_flip(image, draws, padding):
    """One image [channels, height, width]: pad with black, cut at (top, left), mirror if the third draw says so."""
    channels, height, width = image.shape
    canvas = np.zeros((channels, height + 2 * padding, width + 2 * padding), dtype=image.dtype)
    canvas[:, padding : padding + height, padding : padding + width] = image
    top, left = (int(draw * (2 * padding + 1)) for draw in draws[:2])
    cut = canvas[:, top : top + height, left : left + width]
    return cut[:, :, ::-1] if draws[2] < 0.5 else cut


@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    padding=st.integers(0, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_crop_flip_equals_the_slow_reference(shape, padding, seed):
    rng = np.random.default_rng(seed)
    images, draws = rng.integers(0, 256, shape, dtype=np.uint8), rng.random((shape[0], 3))
    fast = CropFlip(padding)(torch.from_numpy(images), torch.from_numpy(draws))
    slow = np.stack([slow_crop_flip(image, draw, padding) for image, draw in zip(images, draws, strict=True)])
    assert fast.dtype == torch.uint8
    assert np.array_equal(fast.numpy(), slow)


@pytest.mark.parametrize("draw", [0.0, np.nextafter(1.0, 0.0)])
def test_the_extremes_of_the_draws_stay_inside_the_canvas(draw):
    images = np.arange(2 * 1 * 3 * 3, dtype=np.float32).reshape(2, 1, 3, 3) + 1
    draws = np.full((2, 3), draw)
    fast = CropFlip(2)(torch.from_numpy(images), torch.from_numpy(draws)).numpy()
    assert np.array_equal(
        fast, np.stack([slow_crop_flip(image, row, 2) for image, row in zip(images, draws, strict=True)])
    )


def test_offsets_and_mirrors_are_uniform():
    draws = np.random.default_rng(0).random((9000, 3))
    marked = torch.zeros(9000, 1, 9, 9)
    marked[:, 0, 4, 4] = 1
    rows, columns = CropFlip(4)(marked, torch.from_numpy(draws))[:, 0].nonzero()[:, 1:].unbind(1)
    for place in (rows, columns):
        assert place.bincount(minlength=9).min() > 850
    assert abs((draws[:, 2] < 0.5).mean() - 0.5) < 0.02


def planner(shards, num_draws, seed=5):
    return Planner(
        streams=Streams(seed), shards=shards, phases=(PhasePlan(2),), batch_size=8,
        last_batch="keep", weighting="samples",
        mean_samples=10.0, skip_singletons=False, num_draws=num_draws, augmented_pass=False, device=torch.device("cpu"),
    )  # fmt: skip


def test_a_clients_batches_are_its_images_augmented_by_the_stream_of_round_client_and_epoch():
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (40, 1, 6, 6), dtype=np.uint8), np.arange(40) % 4
    dataset = Dataset("d", Part(images, labels), Part(images, labels), 4, unit=255.0)
    shards = IID().split(labels, 3, 0)
    samples = to_samples(dataset, dataset.train, torch.device("cpu"), torch.float64, CropFlip())
    task = planner(shards, 3).task(round_=2, client=1)
    held = shards.indices(1, 2)
    batches = iter(task.phases[0])
    for epoch in range(2):
        order = held[Streams(5).numpy("client", 2, 1, epoch).permutation(len(held))]
        draws = Streams(5).numpy("augment", 2, 1, epoch).random((len(held), 3))
        for start in range(0, len(held), 8):
            batch = next(batches)
            inputs, seen = samples.batch(batch.indices, batch.draws)
            chosen, drawn = order[start : start + 8], draws[start : start + 8]
            slow = [slow_crop_flip(images[i], d, 4) / 255.0 for i, d in zip(chosen, drawn, strict=True)]
            assert np.allclose(inputs.numpy(), np.stack(slow), rtol=0, atol=1e-15)
            assert seen.tolist() == labels[chosen].tolist()
    assert next(batches, None) is None


def test_images_are_untouched_without_draws():
    images = np.random.default_rng(1).integers(0, 256, (5, 1, 6, 6), dtype=np.uint8)
    labels = np.arange(5) % 2
    dataset = Dataset("d", Part(images, labels), Part(images, labels), 2)
    samples = to_samples(dataset, dataset.train, torch.device("cpu"), torch.float64, CropFlip())
    assert np.array_equal(samples.batch(torch.arange(5))[0].numpy(), images)


def test_no_augmentation_needs_no_draws():
    assert apply_recipe(flat(), "none")[1] is None


def test_unknown_augmentations_and_unfit_inputs_are_refused():
    with pytest.raises(Misconfigured, match="'crop_flip'"):
        apply_recipe(flat(), "crop_flp")
    with pytest.raises(Misconfigured, match=r"\(64,\)"):
        apply_recipe(flat(), "crop_flip")


def flat() -> Dataset:
    part = Part(np.zeros((4, 64), dtype=np.float32), np.arange(4) % 2)
    return Dataset("d", part, part, 2)


def test_the_padding_of_normalised_images_is_black():
    """Images are padded before they are normalised: black is 0 as stored, not 0 after the shift."""
    images = np.full((4, 1, 5, 5), 200, dtype=np.uint8)
    labels = np.arange(4) % 2
    dataset = Dataset("d", Part(images, labels), Part(images, labels), 2, unit=255.0, mean=(0.5,), std=(0.25,))
    samples = to_samples(dataset, dataset.train, torch.device("cpu"), torch.float64, CropFlip())
    corner = torch.zeros(4, 3, dtype=torch.float64)
    inputs, _ = samples.batch(torch.arange(4), corner)
    assert inputs.min().item() == pytest.approx(-2.0)
