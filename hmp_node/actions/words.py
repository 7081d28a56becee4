"""Eight words two people read to each other to know that no one sits between them.

The words come from both public keys, in an order that does not depend on who asks, under a domain prefix:
8 bytes of SHA-256, so 64 bits, far more than a person in the middle can search while people talk.
"""

from __future__ import annotations

import hashlib

PREFIX = b"hmp-safety-words-v1\n"

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


def safety_words(one: bytes, other: bytes) -> tuple[str, ...]:
    """The same eight words on both sides, from the two 32-byte public keys."""
    first, second = sorted((one, other))
    digest = hashlib.sha256(PREFIX + first + second).digest()
    return tuple(WORDS[byte] for byte in digest[:8])
