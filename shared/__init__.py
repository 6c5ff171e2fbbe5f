"""What more than one part needs: messages, arrays, codec, keys, cache client, policy, prices."""
