/** keccak256, the one hash of everything that is signed: any bytes → a fresh array of 32. */
export { keccak_256 as keccak } from '@noble/hashes/sha3'
