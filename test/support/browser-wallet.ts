import type { BrowserContext } from 'playwright-core'
import { createWalletClient, defineChain, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import type { Hex } from '#ports'
import type { WalletDocument } from './wallet-server.js'

export type Provider = (method: string, params: readonly unknown[]) => Promise<unknown>

export interface Asked {
  readonly method: string
  readonly params: readonly unknown[]
}

export class ProviderError extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message)
  }
}

let bridges = 0

/**
 * Announces `provider` as a wallet in every page of the browser (EIP-6963); without a name it stands
 * at `window.ethereum` and announces nothing. What it was asked, in order.
 */
export async function injectWallet(
  browser: BrowserContext,
  provider: Provider,
  name: string | null = 'Test Wallet',
): Promise<readonly Asked[]> {
  const asked: Asked[] = []
  const bridge = `askWallet${bridges++}`
  await browser.exposeFunction(bridge, async (text: string) => {
    const { method, params = [] } = JSON.parse(text) as Asked
    asked.push({ method, params })
    try {
      return { result: await provider(method, params) }
    } catch (error) {
      const { code = -32603, message } = error as ProviderError
      return { error: { code, message } }
    }
  })
  await browser.addInitScript(
    ({ bridge, name }: { bridge: string; name: string | null }) => {
      const page = globalThis as unknown as {
        addEventListener(type: string, listener: () => void): void
        dispatchEvent(event: unknown): boolean
        CustomEvent: new (type: string, options: object) => unknown
      }
      const provider = {
        async request(call: object) {
          const ask = Reflect.get(page, bridge) as (
            text: string,
          ) => Promise<{ result?: unknown; error?: object }>
          const { result, error } = await ask(JSON.stringify(call))
          if (error) throw Object.assign(new Error(), error)
          return result
        },
        on() {},
      }
      if (name === null) {
        Object.assign(page, { ethereum: provider })
        return
      }
      const info = { uuid: bridge, name, rdns: 'test.wallet', icon: 'data:,' }
      const announce = () =>
        page.dispatchEvent(
          new page.CustomEvent('eip6963:announceProvider', {
            detail: Object.freeze({ info, provider }),
          }),
        )
      page.addEventListener('eip6963:requestProvider', announce)
      announce()
    },
    { bridge, name },
  )
  return asked
}

export function honestProvider(key: Hex, rpcUrl: string, chainId: number): Provider {
  const account = privateKeyToAccount(key)
  const chain = defineChain({
    id: chainId,
    name: 'dev',
    nativeCurrency: { name: 'dev', symbol: 'DEV', decimals: 18 },
    rpcUrls: { default: { http: [rpcUrl] } },
  })
  const client = createWalletClient({ account, chain, transport: http(rpcUrl) })
  let current = 1
  return async (method, params) => {
    switch (method) {
      case 'eth_requestAccounts':
      case 'eth_accounts':
        return [account.address]
      case 'eth_chainId':
        return `0x${current.toString(16)}`
      case 'wallet_switchEthereumChain':
        current = Number((params[0] as { chainId: string }).chainId)
        return null
      case 'eth_signTypedData_v4':
        return account.signTypedData(JSON.parse(String(params[1])) as WalletDocument)
      case 'eth_sendTransaction': {
        const { to, data } = params[0] as { to: Hex; data: Hex }
        return client.sendTransaction({ to, data })
      }
      default:
        throw new ProviderError(4200, `${method} is not supported`)
    }
  }
}
