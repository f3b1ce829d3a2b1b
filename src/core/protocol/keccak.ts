/**
 * keccak256, the one hash of everything that is signed. WebAssembly is compiled beside what goes on,
 * for cold JavaScript needs 2 ms for one hash; nobody waits for it, so that the library can be loaded
 * by `require`.
 */
import { keccak_256 } from '@noble/hashes/sha3'
import { createKeccak, type IHasher } from 'hash-wasm'

let hasher: IHasher | undefined
createKeccak(256).then(
  (compiled) => {
    hasher = compiled
  },
  // A process under a memory limit cannot have WebAssembly: slower is still right.
  () => undefined,
)

export const keccak = (bytes: Uint8Array) =>
  hasher === undefined ? keccak_256(bytes) : hasher.init().update(bytes).digest('binary')
