"""Words that two people read to each other to know that no one sits between them.

Each key has its own sixteen, 128 bits of its SHA-256 under a domain prefix: to pass for it takes another key with
the same words, 2^128 tries. Words over both keys at once would let a person in the middle, who chooses a key for
either side, look for any two that agree, which is the square root of that work.
"""

from __future__ import annotations

import hashlib

PREFIX = b"hmp-safety-words-v2\n"
COUNT = 16

WORDS = tuple(  # 256: one byte, one word
    """
    acid acorn actor album alarm alley amber anchor angle ankle apple apron arch arena armor arrow atlas attic
    autumn bacon badge bagel bamboo banjo barrel basin basket beach beard beaver bench berry bicycle bird
    blanket blossom boat bonnet border bottle bowl branch bread brick bridge brush bucket bundle butter button
    cabin cactus camel camera candle canoe canvas captain carpet carrot castle cattle cedar celery cement chair
    chalk cheese cherry chest chimney church cinema circus citrus clay clock cloud clover coast cobra coffee
    coin collar comet copper coral corner cotton couch cousin cradle crane cricket crown crystal cup curtain
    daisy dancer dawn deer desert diamond dinner dolphin donkey door dragon drawer dream drum duck eagle earth
    easel echo elbow elephant elm engine evening fabric falcon farmer feather fence fern ferry fiddle field
    finger flag flute forest fossil fountain fox frog garden garlic gate ghost giant ginger glacier glove goat
    gold goose grape grass gravel guitar hammer harbor harp hawk helmet hill honey horse hotel iceberg igloo
    insect iron island ivory jacket jaguar jelly jewel jungle kettle kite kitten ladder lake lamp lantern lemon
    leopard letter lily lion lizard lobster locket lumber magnet mango maple marble market meadow melon mirror
    mitten monkey moon mountain muffin museum mushroom napkin needle nephew nest nickel night north nutmeg oak
    oasis ocean olive onion orange orbit organ otter oven owl oyster paddle palace panda paper parrot pasta
    peach peanut pearl pebble pelican pencil pepper piano pigeon pillow pine planet plum pocket pony poppy
    potato prince pumpkin puzzle rabbit radio raven river robot
    """.split()  # noqa: SIM905 a list to read, not to parse
)


def safety_words(public_key: bytes) -> tuple[str, ...]:
    """The words of one 32-byte public key, the same on every node."""
    digest = hashlib.sha256(PREFIX + public_key).digest()
    return tuple(WORDS[byte] for byte in digest[:COUNT])
