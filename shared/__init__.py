"""Code that several parts need: messages, arrays, codec, keys, cache client, policy, prices."""
