/**
 * keccak256, the one hash of everything that is signed. WebAssembly, compiled once when this module
 * loads: cold JavaScript needs 2 ms for one hash.
 */
import { createKeccak } from 'hash-wasm'

async function load(): Promise<(bytes: Uint8Array) => Uint8Array> {
  try {
    const hasher = await createKeccak(256)
    return (bytes) => hasher.init().update(bytes).digest('binary')
  } catch {
    // A process under a memory limit cannot have WebAssembly: slower is still right.
    return (await import('@noble/hashes/sha3')).keccak_256
  }
}

export const keccak = await load()
