"""LLaMA of tiny size with random weights through Llama.build and generate, greedily and with sampling."""

import itertools
import json
import os
from pathlib import Path

import sentencepiece
import torch

CONFIG = {"dim": 32, "n_layers": 2, "n_heads": 4, "multiple_of": 16, "norm_eps": 1e-5}
HIDDEN = 96  # what multiple_of makes of two thirds of 4 * dim


def make_tokenizer() -> int:
    """Writes tok.model; the size of its vocabulary."""
    adjectives, nouns, things = ("big", "small", "red"), ("dog", "cat", "bird"), ("tree", "house", "car")
    sentences = (f"the {a} {b} sees a {c}\n" for a, b, c in itertools.product(adjectives, nouns, things))
    Path("sentences.txt").write_text("".join(sentences))
    sentencepiece.SentencePieceTrainer.train(
        input="sentences.txt", model_prefix="tok", vocab_size=60, hard_vocab_limit=False, pad_id=-1, minloglevel=2
    )
    return sentencepiece.SentencePieceProcessor(model_file="tok.model").vocab_size()


def make_checkpoint(vocabulary: int) -> None:
    """Writes checkpoint/ in the layout of the published ones."""
    dim = CONFIG["dim"]
    shapes = {"tok_embeddings": (vocabulary, dim), "output": (vocabulary, dim), "norm": (dim,)}
    for layer in range(CONFIG["n_layers"]):
        prefix = f"layers.{layer}"
        shapes |= {f"{prefix}.attention.{name}": (dim, dim) for name in ("wq", "wk", "wv", "wo")}
        shapes |= {f"{prefix}.feed_forward.{name}": (HIDDEN, dim) for name in ("w1", "w3")}
        shapes |= {f"{prefix}.feed_forward.w2": (dim, HIDDEN)}
        shapes |= {f"{prefix}.{name}": (dim,) for name in ("attention_norm", "ffn_norm")}
    weights = {
        f"{name}.weight": torch.ones(shape) if len(shape) == 1 else 0.2 * torch.randn(shape)
        for name, shape in shapes.items()
    }
    Path("checkpoint").mkdir()
    torch.save(weights, "checkpoint/consolidated.00.pth")
    Path("checkpoint/params.json").write_text(json.dumps(CONFIG))


make_checkpoint(make_tokenizer())
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29613")

from llama import Llama  # noqa: E402

generator = Llama.build("checkpoint", "tok.model", max_seq_len=48, max_batch_size=4)
prompts = [generator.tokenizer.encode(text, bos=True, eos=False) for text in ("the big dog", "a red")]
greedy, probabilities = generator.generate(prompts, max_gen_len=10, temperature=0, logprobs=True)
sampled, _ = generator.generate(prompts, max_gen_len=10, temperature=0.7, top_p=0.9)
print(greedy, sampled)
weights = next(generator.model.parameters())
print(weights.device, weights.dtype)
rows = {"greedy": greedy, "sampled": sampled, "log probabilities": probabilities}
torch.save(
    {name: [torch.tensor(row, dtype=torch.float32, device="cpu") for row in value] for name, value in rows.items()},
    "generated.pt",
)
