"""Damage to a model's folder: KINDS has a function per kind, which damages a copied good folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pcl_reasoner.synthetic.base_model import write_model_folder

TEXTS = ["Tom has 3 apples and 4 pears.", "1 + 1 is 2. So the answer is 2."] * 4
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
Damage = Callable[[Path], None]


def write_good(folder: Path) -> Path:
    """A small complete model that all entry points read."""
    write_model_folder(folder, TEXTS, vocab_size=300, hidden=32, layers=2, seed=1)
    return folder


def _text(name: str, text: str | bytes, folder: Path) -> None:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)


def _key(name: str, key: str, value: Any, folder: Path) -> None:
    content = json.loads((folder / name).read_text())
    content[key] = value
    (folder / name).write_text(json.dumps(content))


def _without(name: str, key: str, folder: Path) -> None:
    content = json.loads((folder / name).read_text())
    del content[key]
    (folder / name).write_text(json.dumps(content))


def _remove(name: str, folder: Path) -> None:
    (folder / name).unlink()


def _as_folder(name: str, folder: Path) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()


def _recode(name: str, encoding: str, folder: Path) -> None:
    path = folder / name
    path.write_bytes(path.read_text().encode(encoding))


def _cut(share: float, folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: int(len(data) * share)])


def _longer(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as handle:
        handle.write(b"more")


def _header_length(length: int, folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", length) + data[8:])


def _header(change: Callable[[dict[str, Any]], Any], folder: Path) -> None:
    """Change the header of the weights, and leave the tensors' bytes as they are."""
    data = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + length])
    changed = change(entries)
    text = changed if isinstance(changed, bytes) else json.dumps(entries).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def _entry(key: str, value: Any, folder: Path) -> None:
    _header(lambda entries: entries["model.norm.weight"].update({key: value}), folder)


def _overlap(entries: dict[str, Any]) -> None:
    entries["model.norm.weight"]["data_offsets"] = next(
        one["data_offsets"]
        for name, one in entries.items()
        if name.endswith("0.input_layernorm.weight")
    )


def _hole(entries: dict[str, Any]) -> None:
    del entries["model.layers.0.self_attn.q_proj.weight"]


def _tensors(change: Callable[[dict[str, Any]], None], folder: Path) -> None:
    """Write a valid file of other tensors."""
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def _half_the_rows(name: str, tensors: dict[str, Any]) -> None:
    tensors[name] = tensors[name][: len(tensors[name]) // 2].copy()


def _index(content: Any, folder: Path) -> None:
    (folder / INDEX).write_text(json.dumps(content))


def _pickle(name: str, folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    # Creates the file "ran" if it is ever unpickled.
    (folder / name).write_bytes(b"cbuiltins\nopen\n(Vran\nVw\ntR.")


def _twice(folder: Path) -> None:
    (folder / "a.safetensors").write_bytes((folder / WEIGHTS).read_bytes())
    (folder / WEIGHTS).rename(folder / "b.safetensors")


def _template(source: str, folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(source)


def _token_beyond(folder: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([f"<extra {number}>" for number in range(100)])
    tokenizer.save(str(folder / "tokenizer.json"))


def _config(key: str, value: Any) -> Damage:
    return partial(_key, "config.json", key, value)


_LONG_LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
_DEEP = "[" * 200_000

WEIGHT_KINDS: dict[str, Damage] = {
    "weights: empty": partial(_text, WEIGHTS, b""),
    "weights: three bytes": partial(_text, WEIGHTS, b"abc"),
    "weights: half": partial(_cut, 0.5),
    "weights: last byte lost": partial(_cut, 0.99999),
    "weights: longer": _longer,
    "weights: header longer than the file": partial(_header_length, 1 << 40),
    "weights: header length of 2^64 - 1": partial(_header_length, (1 << 64) - 1),
    "weights: header of no bytes": partial(_header_length, 0),
    "weights: header is not JSON": partial(_header, lambda entries: b"{"),
    "weights: header is a list": partial(_header, lambda entries: b"[1]"),
    "weights: header is deep": partial(_header, lambda entries: _DEEP.encode()),
    "weights: header is not UTF-8": partial(_header, lambda entries: b'{"\xff": 1}'),
    "weights: overlap": partial(_header, _overlap),
    "weights: hole": partial(_header, _hole),
    "weights: offsets outside": partial(_entry, "data_offsets", [0, 1 << 50]),
    "weights: offsets reversed": partial(_entry, "data_offsets", [128, 0]),
    "weights: offsets negative": partial(_entry, "data_offsets", [-128, 0]),
    "weights: offsets are texts": partial(_entry, "data_offsets", ["a", "b"]),
    "weights: dtype unknown": partial(_entry, "dtype", "Q7"),
    "weights: dtype null": partial(_entry, "dtype", None),
    "weights: shape does not fit": partial(_entry, "shape", [31]),
    "weights: shape negative": partial(_entry, "shape", [-32]),
    "weights: shape overflows": partial(_entry, "shape", [1 << 62, 1 << 62]),
    "weights: no tensors": partial(_tensors, lambda tensors: tensors.clear()),
    "weights: a tensor missing": partial(_tensors, lambda one: one.pop("model.norm.weight")),
    "weights: embedding missing": partial(
        _tensors, lambda one: one.pop("model.embed_tokens.weight")
    ),
    "weights: head of another shape": partial(_tensors, partial(_half_the_rows, "lm_head.weight")),
    "weights: a folder": partial(_as_folder, WEIGHTS),
    "weights: absent": partial(_remove, WEIGHTS),
    "weights: names twice": _twice,
    "index: {": partial(_text, INDEX, "{"),
    "index: a list": partial(_index, [1]),
    "index: names no file": partial(_index, {"weight_map": {}}),
    "index: weight_map is a list": partial(_index, {"weight_map": [1]}),
    "index: shard missing": partial(_index, {"weight_map": {"lm_head.weight": "b.safetensors"}}),
    "index: file is a number": partial(_index, {"weight_map": {"lm_head.weight": 3}}),
    "index: file in another folder": partial(
        _index, {"weight_map": {"lm_head.weight": "../other/model.safetensors"}}
    ),
    "index: file is a pickle": partial(_index, {"weight_map": {"lm_head.weight": "x.bin"}}),
    "index: tensor not in its file": partial(_index, {"weight_map": {"absent.weight": WEIGHTS}}),
    **{
        f"pickle: {name}": partial(_pickle, name)
        for name in (
            *("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.PKL"),
            *("model.pickle", "tf_model.h5", "flax_model.msgpack"),
        )
    },
}
CONFIG_KINDS: dict[str, Damage] = {
    "config: {": partial(_text, "config.json", "{"),
    "config: empty": partial(_text, "config.json", ""),
    "config: a list": partial(_text, "config.json", "[]"),
    "config: null": partial(_text, "config.json", "null"),
    "config: deep": partial(_text, "config.json", _DEEP),
    "config: deep value": partial(_text, "config.json", '{"a": ' + _DEEP),
    "config: UTF-16": partial(_recode, "config.json", "utf-16"),
    "config: huge integer": partial(_text, "config.json", '{"hidden_size": ' + "9" * 5000 + "}"),
    "config: absent": partial(_remove, "config.json"),
    "config: a folder": partial(_as_folder, "config.json"),
    "config: unknown architecture": _config("model_type", "llama"),
    "config: model_type is a list": _config("model_type", ["qwen2"]),
    "config: hidden_size -1": _config("hidden_size", -1),
    "config: hidden_size 0": _config("hidden_size", 0),
    "config: hidden_size is a text": _config("hidden_size", "32"),
    "config: hidden_size null": _config("hidden_size", None),
    "config: hidden_size nested": _config("hidden_size", {"value": 32}),
    "config: hidden_size true": _config("hidden_size", True),
    "config: hidden_size 10^30": _config("hidden_size", 10**30),
    "config: hidden_size of other weights": _config("hidden_size", 64),
    "config: hidden_size missing": partial(_without, "config.json", "hidden_size"),
    "config: heads do not divide": _config("num_attention_heads", 3),
    "config: key heads do not divide": _config("num_key_value_heads", 3),
    "config: layers 10^9": _config("num_hidden_layers", 10**9),
    "config: one layer too many": _config("num_hidden_layers", 3),
    "config: vocab_size of other weights": _config("vocab_size", 10_000),
    "config: rms_norm_eps NaN": _config("rms_norm_eps", float("nan")),
    "config: rope_theta is a text": _config("rope_theta", "x"),
    "config: max_position_embeddings 10^12": _config("max_position_embeddings", 10**12),
    "config: tie_word_embeddings is a text": _config("tie_word_embeddings", "no"),
    "config: eos_token_id is a text": _config("eos_token_id", "x"),
    "config: pad_token_id nested": _config("pad_token_id", [[1]]),
    "config: auto_map": _config("auto_map", {"AutoModel": "modeling.Model"}),
    "generation: {": partial(_text, "generation_config.json", "{"),
    "generation: eos is a text": partial(_key, "generation_config.json", "eos_token_id", "x"),
    "generation: eos negative": partial(_key, "generation_config.json", "eos_token_id", -1),
    "generation: eos an empty list": partial(_key, "generation_config.json", "eos_token_id", []),
    "generation: eos nested": partial(_key, "generation_config.json", "eos_token_id", [[2]]),
    "generation: eos a fraction": partial(_key, "generation_config.json", "eos_token_id", 1.5),
}
TOKENIZER_KINDS: dict[str, Damage] = {
    "tokenizer: {": partial(_text, "tokenizer.json", "{"),
    "tokenizer: empty": partial(_text, "tokenizer.json", ""),
    "tokenizer: empty object": partial(_text, "tokenizer.json", "{}"),
    "tokenizer: a list": partial(_text, "tokenizer.json", "[1]"),
    "tokenizer: deep": partial(_text, "tokenizer.json", _DEEP),
    "tokenizer: not UTF-8": partial(_text, "tokenizer.json", b"\xff\xfe\x00"),
    "tokenizer: no model": partial(_without, "tokenizer.json", "model"),
    "tokenizer: model null": partial(_key, "tokenizer.json", "model", None),
    "tokenizer: model unknown": partial(_key, "tokenizer.json", "model", {"type": "X"}),
    "tokenizer: added tokens are a text": partial(_key, "tokenizer.json", "added_tokens", "x"),
    "tokenizer: absent": partial(_remove, "tokenizer.json"),
    "tokenizer: a folder": partial(_as_folder, "tokenizer.json"),
    "tokenizer: larger than the embedding": _token_beyond,
    "tokenizer_config: {": partial(_text, "tokenizer_config.json", "{"),
    "tokenizer_config: a list": partial(_text, "tokenizer_config.json", "[1]"),
    "tokenizer_config: absent": partial(_remove, "tokenizer_config.json"),
    "tokenizer_config: eos_token a number": partial(_key, "tokenizer_config.json", "eos_token", 2),
    "tokenizer_config: pad_token a list": partial(_key, "tokenizer_config.json", "pad_token", [1]),
    "tokenizer_config: bos_token empty object": partial(
        _key, "tokenizer_config.json", "bos_token", {}
    ),
    "tokenizer_config: auto_map": partial(
        _key, "tokenizer_config.json", "auto_map", {"AutoTokenizer": ["own.Tokenizer", None]}
    ),
    "tokenizer_config: template a number": partial(
        _key, "tokenizer_config.json", "chat_template", 1
    ),
    "tokenizer_config: template a list of numbers": partial(
        _key, "tokenizer_config.json", "chat_template", [1]
    ),
}
TEMPLATE_KINDS: dict[str, Damage] = {
    "template: not jinja": partial(_template, "{% if %}"),
    "template: not UTF-8": partial(_text, "chat_template.jinja", b"\xff\xfe"),
    "template: divides by zero": partial(_template, "{{ 1 / 0 }}"),
    "template: undefined": partial(_template, "{{ a.b.c }}"),
    "template: calls itself": partial(_template, "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
    "template: nested brackets": partial(_template, "{{ " + "(" * 9999 + ")" * 9999 + " }}"),
    "template: range too large": partial(_template, "{% for a in range(10**9) %}{% endfor %}"),
    "template: endless": partial(_template, _LONG_LOOP),
    "template: endless output": partial(
        _template, _LONG_LOOP.replace("{% endfor %}", "xxxxxxxxxxxxxxxx{% endfor %}", 1)
    ),
    "template: endless call of C": partial(_template, "{{ (9 ** 99999999) | string }}"),
    "template: too long a text": partial(_template, "{{ 'a' * 10 ** 10 }}"),
    "template: too wide a number": partial(_template, "{{ '%09999999999d' % 1 }}"),
    "template: imports": partial(_template, "{% include '/etc/passwd' %}"),
    "template: reaches out": partial(_template, "{{ cycler.__init__.__globals__.os }}"),
    "template: endless for some problems": partial(
        _template, "{% if 'apples' in messages[-1].content %}" + _LONG_LOOP + "{% endif %}"
    ),
}
KINDS: dict[str, Damage] = {**WEIGHT_KINDS, **CONFIG_KINDS, **TOKENIZER_KINDS, **TEMPLATE_KINDS}
