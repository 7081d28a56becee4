"""``python -m hmp_node`` is ``hmp-node``."""

from hmp_node.cli.main import main

main()
