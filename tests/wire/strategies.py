"""JSON of every odd kind, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

ODD_CHARACTERS = '\x00\x01\x08\t\n\f\r\x1f "\\/\x7fé\u2028\ud7ff\ue000\uffff\U0001f600[]{}:,0'
texts = st.text(
    alphabet=st.one_of(
        st.sampled_from(ODD_CHARACTERS.replace("\x00", "")),
        st.characters(codec="utf-8", exclude_characters="\x00"),
    ),
    max_size=12,
)
any_texts = st.text(alphabet=st.one_of(st.sampled_from(ODD_CHARACTERS), st.characters()), max_size=12)
integers = st.integers(-(2**53), 2**53)
leaves = st.one_of(st.none(), st.booleans(), integers, texts)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=20,
)
objects = st.dictionaries(texts, values, max_size=5)
any_leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), any_texts, st.binary(max_size=4))
any_values = st.recursive(
    any_leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(any_texts, inner, max_size=4)),
    max_leaves=15,
)
number_tokens = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
