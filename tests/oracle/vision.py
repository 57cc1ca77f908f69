"""Work of one run of the vision encoder, patch by patch and pair by pair.

Source: model-facts §7. Captured rows beyond those of the images are one further sequence.
"""

from __future__ import annotations


def sequence_of_patches(vision, images, captured_tokens: int) -> list[int]:
    """To which sequence each patch of a run belongs."""
    rows = [number for number, image in enumerate(images) for _ in range(image.patches)]
    while captured_tokens and len(rows) < vision.downsample**2 * captured_tokens:
        rows.append(-1)
    return rows


def cells_of(vision, images, captured_tokens: int) -> int:
    """Rows of the projector: a cell for each started group of patches, each way."""
    cells = 0
    for image in images:
        for _ in range(0, image.patches_high, vision.downsample):
            for _ in range(0, image.patches_wide, vision.downsample):
                cells += 1
    return captured_tokens or cells


def multiply_accumulates(model, images, *, ranks: int = 1, captured_tokens: int = 0) -> int:
    """MACs of one rank, row by row; products whose weights are cut do their share."""
    vision = model.vision
    width, hidden = vision.hidden, model.hidden
    gated = vision.intermediate // ranks
    head = width // vision.heads
    rows = sequence_of_patches(vision, images, captured_tokens)
    total = 0
    for _ in rows:
        total += 3 * vision.patch**2 * width
    for _ in range(vision.layers):
        for patch in rows:
            total += width * 3 * width // ranks  # query, key, value
            total += width // ranks * width  # output
            total += width * 2 * gated + gated * width  # gate, up, down
            same = rows.count(patch)
            total += (vision.heads // ranks) * same * (head + head)  # scores and weighted values
    for _ in range(cells_of(vision, images, captured_tokens)):
        joined = vision.downsample**2 * width
        total += joined * hidden // ranks + hidden // ranks * hidden
    return total


def messages(model, images, *, ranks: int, captured_tokens: int = 0) -> int:
    """Bytes that sums over ranks hand in, two a value."""
    vision = model.vision
    if ranks == 1:
        return 0
    rows = len(sequence_of_patches(vision, images, captured_tokens))
    values = 0
    for _ in range(vision.layers):
        values += rows * vision.hidden  # behind attention
        values += rows * vision.hidden  # behind the gated layer
    return 2 * (values + cells_of(vision, images, captured_tokens) * model.hidden)


def span(image) -> list[str]:
    """An image's tokens, one by one."""
    tokens = ["start"]
    for _ in range(image.cells_high):
        tokens += ["cell"] * image.cells_wide + ["newline"]
    return [*tokens, "end"]


def largest_load(patches: list[int], ranks: int) -> int:
    """The fewest patches that the fullest rank can have, over every assignment."""
    best = sum(patches)
    for choice in range(ranks ** len(patches)):
        loads = [0] * ranks
        for size in patches:
            choice, rank = divmod(choice, ranks)
            loads[rank] += size
        best = min(best, max(loads))
    return best
