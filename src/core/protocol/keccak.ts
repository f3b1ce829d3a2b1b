/**
 * Cold JavaScript needs 2 ms for one hash. Nobody waits for WebAssembly, so that the library can be
 * loaded by `require`.
 */
import { keccak_256 } from '@noble/hashes/sha3'
import { createKeccak, type IHasher } from 'hash-wasm'

let hasher: IHasher | undefined
/** Begun by what signs or recovers: who only reads is done before. */
export function compileKeccak() {
  createKeccak(256).then(
    (compiled) => {
      hasher = compiled
    },
    // Under a memory limit: slower is still right.
    () => undefined,
  )
}

export const keccak = (bytes: Uint8Array) =>
  hasher === undefined ? keccak_256(bytes) : hasher.init().update(bytes).digest('binary')
