"""TenSEAL: averages under CKKS homomorphic encryption; every peer encrypts, one adds ciphertexts, the key holder opens.

All in one process, one peer after the other; bytes are the ciphertexts that a peer would send. The security level is
TenSEAL's default for a polynomial of degree 8192 (128 bits).
"""

from __future__ import annotations

import numpy as np
import tenseal
from common import Watch, arguments, largest_error, tell, truth, vector, versions

DEGREE, SCALE = 8192, 2**40
SLOTS = DEGREE // 2


def main() -> None:
    args = arguments(__doc__)
    keys = tenseal.context(tenseal.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=[60, 40, 40, 60])
    keys.global_scale = SCALE
    vectors = [vector(peer, args.size) for peer in range(args.peers)]
    truth(args.peers, args.size)
    watch = Watch()
    watch.begin()
    sent = 0
    for _ in range(args.repeat):
        with watch.average():
            total: list[tenseal.CKKSVector] = []
            sent = 0
            for w in vectors:
                pieces = [tenseal.ckks_vector(keys, w[at : at + SLOTS]) for at in range(0, args.size, SLOTS)]
                wire = [piece.serialize() for piece in pieces]
                sent += sum(map(len, wire))
                arrived = [tenseal.ckks_vector_from(keys, piece) for piece in wire]
                total = [a + b for a, b in zip(total, arrived, strict=True)] if total else arrived
            mean = np.concatenate([np.array(piece.decrypt()) for piece in total]) / args.peers
    result = watch.result(args, largest_error=largest_error(mean, args.peers))
    tell({**result, "bytes_per_peer": sent / args.peers, "versions": versions("tenseal", "numpy")})


if __name__ == "__main__":
    main()
