"""A sentence-transformers folder with random weights: another dimension, other windows.

Its tokenizer is of the class that belongs to no model, as in many folders on the hub.
"""

from pathlib import Path

DIMENSION, TOKENS = 32, 48


def write(folder: Path, texts: list[str], seed: int = 0) -> Path:
    """Make the folder; every word of the texts has a token of its own."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordLevel
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    split = pre_tokenizers.BertPreTokenizer()
    lower = normalizers.BertNormalizer(lowercase=True)
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text.lower())}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: number for number, word in enumerate([*special, *sorted(words)])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = lower, split
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=TOKENS, **names)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=DIMENSION,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    raw = folder.with_name(folder.name + "_raw")
    BertModel(config).save_pretrained(raw)
    fast.save_pretrained(raw)
    words_in = models.Transformer(str(raw), max_seq_length=TOKENS)
    pooled = models.Pooling(DIMENSION, pooling_mode="mean")
    SentenceTransformer(modules=[words_in, pooled], device="cpu").save(str(folder))
    return folder
