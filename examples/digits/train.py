"""Trains the digit reader of `onionskin demo` and writes all that stands beside this file.

    python examples/digits/train.py

The data is scikit-learn's copy of the UCI "Optical Recognition of Handwritten Digits" test set: 1,797 scans of
handwritten digits, 8 by 8 pixels, ink from 0 to 16. A fifth is held back and never seen in training.

    digits.pt             the trained network, traced in eval mode: f32[B, 1, 8, 8] -> f32[B, 10] logits
    labels.txt            names of the ten outputs, one a line
    images/NN_is_D.png    20 held-back scans, two per digit: 8-bit gray, 8 by 8, pixel = 15 * ink (0 to 240)
    expected.safetensors  "input", the network's input for these images in the order of their names: ink / 16, which is
                          pixel / 240 exactly; "logits", what PyTorch gives for it
    expected.json         file, label and PyTorch's answer per image; accuracy on all that was held back
    scans.safetensors     all scans: "ink", u8[1797, 8, 8]; "labels", u8[1797]; "is_held_back", bool[1797]

The data products come out the same on every run with the same versions of PyTorch and scikit-learn on one processor type.
Needs torch, scikit-learn, pillow, safetensors.
"""

import json
import pathlib
import sys

import numpy
import torch
from PIL import Image
from safetensors.torch import save
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from record import save_archive  # noqa: E402

SEED = 7
EPOCHS = 40


class DigitReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.dropout = nn.Dropout(0.3)
        self.classify = nn.Linear(32 * 2 * 2, 10)

    def forward(self, image):
        features = self.features(image).flatten(1)
        return self.classify(self.dropout(features))


def train(model, images, labels):
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=EPOCHS * -(-len(images) // 64))
    model.train()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()


def two_of_each(labels):
    """Return the indices of the first two samples of every digit, in the order of the digits."""
    return [int(i) for digit in range(10) for i in numpy.flatnonzero(labels == digit)[:2]]


def write_scans(digits):
    """Write all scans with the mark of those that are held back, and return the indices of the others and of these."""
    indices = numpy.arange(len(digits.target))
    seen, held_back = train_test_split(indices, test_size=0.2, random_state=SEED, stratify=digits.target)
    is_held_back = torch.zeros(len(indices), dtype=torch.bool)
    is_held_back[torch.from_numpy(held_back)] = True
    scans = {
        "ink": torch.from_numpy(digits.images.astype(numpy.uint8)),
        "labels": torch.from_numpy(digits.target.astype(numpy.uint8)),
        "is_held_back": is_held_back,
    }
    (HERE / "scans.safetensors").write_bytes(save(scans))
    return seen, held_back


def main():
    # One thread makes sums independent of the number of cores.
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)

    digits = load_digits()
    seen_indices, held_back_indices = write_scans(digits)
    ink = digits.images.astype(numpy.uint8)
    seen, held_back = ink[seen_indices], ink[held_back_indices]
    seen_labels, held_back_labels = digits.target[seen_indices], digits.target[held_back_indices]

    def as_input(ink):
        return torch.from_numpy(ink).float().unsqueeze(1) / 16

    model = DigitReader()
    train(model, as_input(seen), torch.from_numpy(seen_labels))
    with torch.no_grad():
        answers = model(as_input(held_back)).argmax(1).numpy()
    correct = int((answers == held_back_labels).sum())
    print(f"{correct} of {len(held_back)} held-back digits read correctly: {correct / len(held_back):.2%}")

    chosen = two_of_each(held_back_labels)
    images = as_input(held_back[chosen])
    with torch.no_grad():
        logits = model(images)

    size = save_archive(torch.jit.trace(model, images[:2]), HERE / "digits.pt")
    print(f"digits.pt: {size} bytes")
    (HERE / "labels.txt").write_text("\n".join("zero one two three four five six seven eight nine".split()) + "\n")
    (HERE / "expected.safetensors").write_bytes(save({"input": images, "logits": logits}))

    (HERE / "images").mkdir(exist_ok=True)
    entries = []
    for row, index in enumerate(chosen):
        label = int(held_back_labels[index])
        file = f"images/{row:02}_is_{label}.png"
        Image.fromarray(held_back[index] * 15).save(HERE / file)
        entries.append({"file": file, "label": label, "answer": int(logits[row].argmax())})
    summary = {"held_back": len(held_back), "correct": correct, "pixel_scale": 240, "images": entries}
    (HERE / "expected.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
