"""Search: texts and questions into words, two legs into one ranking, hits into a prompt. No clock, chance or I/O."""
