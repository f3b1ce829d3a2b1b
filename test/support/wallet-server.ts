import { hexToBigInt, hexToNumber } from 'viem'
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import type { Hex } from '#ports'
import { serveHttp } from './http-server.js'

export interface Asked {
  readonly method: string
  readonly params: readonly unknown[]
}

export type WalletAnswer =
  | { readonly result: unknown }
  | { readonly error: { readonly code: number; readonly message: string } }
  | { readonly raw: string; readonly status?: number }
export type Wallet = (asked: Asked) => Promise<WalletAnswer | undefined>

export type WalletServer = Awaited<ReturnType<typeof startWallet>>

export type WalletDocument = Parameters<PrivateKeyAccount['signTypedData']>[0]

export function honestWallet(
  key: Hex,
  change: (signature: Hex) => unknown = (signature) => signature,
): Wallet {
  const account = privateKeyToAccount(key)
  return async ({ method, params }) => {
    if (method === 'eth_accounts') return { result: [account.address] }
    if (method !== 'eth_signTypedData_v4') return undefined
    return {
      result: change(await account.signTypedData(JSON.parse(String(params[1])) as WalletDocument)),
    }
  }
}

export type AskedTransaction = Record<
  | 'from'
  | 'to'
  | 'data'
  | 'value'
  | 'chainId'
  | 'nonce'
  | 'gas'
  | 'maxFeePerGas'
  | 'maxPriorityFeePerGas',
  Hex
>

export function honestSigner(
  key: Hex,
  change: (asked: AskedTransaction) => AskedTransaction = (asked) => asked,
): Wallet {
  const account = privateKeyToAccount(key)
  return async ({ method, params }) => {
    if (method === 'eth_accounts') return { result: [account.address] }
    if (method !== 'eth_signTransaction') return undefined
    const asked = change(params[0] as AskedTransaction)
    if (asked.from !== account.address.toLowerCase())
      return { error: { code: -32_000, message: 'From address does not match available account' } }
    return {
      result: await account.signTransaction({
        type: 'eip1559',
        to: asked.to,
        data: asked.data,
        value: hexToBigInt(asked.value),
        chainId: hexToNumber(asked.chainId),
        nonce: hexToNumber(asked.nonce),
        gas: hexToBigInt(asked.gas),
        maxFeePerGas: hexToBigInt(asked.maxFeePerGas),
        maxPriorityFeePerGas: hexToBigInt(asked.maxPriorityFeePerGas),
      }),
    }
  }
}

export async function startWallet(wallet: Wallet) {
  const asked: Asked[] = []
  const served = await serveHttp(async (_request, body, response) => {
    const { id, method, params } = JSON.parse(body) as Asked & { id: number }
    asked.push({ method, params })
    const missing = { error: { code: -32601, message: 'method not found' } }
    const answer = (await wallet({ method, params })) ?? missing
    response.setHeader('content-type', 'application/json')
    if ('status' in answer) response.statusCode = answer.status ?? 200
    response.end('raw' in answer ? answer.raw : JSON.stringify({ jsonrpc: '2.0', id, ...answer }))
  })
  return { ...served, asked }
}
