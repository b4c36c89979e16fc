"""Builds a Qwen2 tokenizer from the ``vocab.json`` and ``merges.txt`` named in MindFormers' YAML.

    {vocab_file: qwen/vocab.json, merges_file: qwen/merges.txt}

The tokenizer gives the same ids as the model's tokenizer.json and transformers' Qwen2Tokenizer.
"""

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.prompt.model_files import read_json
from pcl_reasoner.synthetic.base_model import QWEN2_SPLIT

QWEN2_5_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>"),
    *("<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>"),
    *("</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>"),
)
"""Tokens that Qwen2.5 adds after its vocabulary, in ascending order of id (151643 …)."""


def read_vocabulary(vocab_file: Path, merges_file: Path) -> Tokenizer:
    """Build a Qwen2 tokenizer.

    Args:
        vocab_file: A JSON object: token -> id.
        merges_file: One merge per line; the first line may be a ``#version`` line.

    The added tokens come from the tokenizer_config.json in the folder of ``vocab_file``. If that
    file is absent or lists none, they are Qwen2.5's, and their ids follow the vocabulary's last id.

    Raises:
        StageError: A file cannot be read, or an added token is malformed, or its id contradicts
            the vocabulary.
    """
    try:
        model = models.BPE.from_file(str(vocab_file), str(merges_file))
    # tokenizers raises a bare Exception for every error in the files.
    except Exception as error:
        raise StageError(
            f"{vocab_file} and {merges_file} cannot be read as a vocabulary and its merges "
            f"({error}). Give the vocab.json and merges.txt of the model's folder."
        ) from error
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for number, token in _added_tokens(vocab_file):
        tokenizer.add_tokens([token])
        got = tokenizer.token_to_id(token.content)
        if number is not None and got != number:
            raise StageError(
                f"{vocab_file}: the added token {token.content} gets id {got}, expected {number} "
                "as in tokenizer_config.json. The two files belong to different models."
            )
    return tokenizer


def _added_tokens(vocab_file: Path) -> list[tuple[int | None, AddedToken]]:
    """Return (id, token) of all added tokens, sorted by id; id None if no file gives it."""
    listed = read_json(vocab_file.parent / "tokenizer_config.json").get("added_tokens_decoder")
    if not listed:
        return [(None, AddedToken(text, normalized=False, special=True)) for text in QWEN2_5_TOKENS]
    keys = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    try:
        return [
            (int(number), AddedToken(**{key: value[key] for key in keys if key in value}))
            for number, value in sorted(listed.items(), key=lambda item: int(item[0]))
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StageError(
            f"{vocab_file.parent / 'tokenizer_config.json'}: added_tokens_decoder must be an "
            f"object of id -> token, each with a text `content` ({error}). Fetch the model again."
        ) from error
