"""A CLIP of tiny size with random weights: saved and loaded as the published ones, then three training steps."""

import clip
import numpy as np
import torch
from clip.model import CLIP
from PIL import Image
from torch.nn.functional import cross_entropy

device = "cuda" if torch.cuda.is_available() else "cpu"
PICTURE = {"embed_dim": 64, "image_resolution": 32, "vision_layers": 2, "vision_width": 64, "vision_patch_size": 16}
TEXT = {
    "context_length": 77,
    "vocab_size": 49408,
    "transformer_width": 64,
    "transformer_heads": 1,
    "transformer_layers": 2,
}


def picture() -> Image.Image:
    pixels = np.random.RandomState(0).randint(0, 255, (40, 50, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


published = torch.jit.trace(CLIP(**PICTURE, **TEXT).eval(), (torch.zeros(1, 3, 32, 32), torch.ones(1, 77).long()))
published.save("tiny.pt")
half, preprocess = clip.load("tiny.pt", device=device)
images = preprocess(picture()).unsqueeze(0).to(device)
texts = clip.tokenize(["a red square", "a dog", "two trees"]).to(device)
with torch.no_grad():
    features = half.encode_image(images), half.encode_text(texts)
    probabilities = half(images, texts)[0].softmax(dim=-1)
torch.save([value.float().cpu() for value in (*features, probabilities)], "inference.pt")

model = half.float()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
target = torch.arange(3, device=device)
for _ in range(3):
    per_image, per_text = model(images.repeat(3, 1, 1, 1), texts)
    loss = (cross_entropy(per_image, target) + cross_entropy(per_text, target)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.6f}")
