/** The `executor` of gateway.json (contract §7, §9): the key, of one kind, and its limits. */
import * as z from 'zod'
import { defaultFailedGas, defaultProposalGas } from '../chain/profiles.js'
import { pkcs11UriFault } from '../protocol/pkcs11-uri.js'
import { urlFault } from '../protocol/plain-http.js'
import { NonzeroAddress } from '../protocol/schema.js'

const path = z.string().min(1)
/** Patterns are for the JSON Schema: it shows what a pipe is given, not what it makes of that. */
export const address = z
  .string()
  .pipe(NonzeroAddress)
  .meta({ pattern: '^0x(?!0{40}$)[0-9a-fA-F]{40}$' })

const RemoteSignerSection = z
  .strictObject({
    url: z.string().describe('the URL of the signer'),
    address: address.describe('the address of the executor (EIP-55 or lowercase)'),
    allow_http: z.boolean().default(false).describe('true or false'),
  })
  .superRefine(({ url, allow_http }, refinement) => {
    const hosts = allow_http && URL.canParse(url) ? [new URL(url).hostname] : []
    if (urlFault(url, hosts) === undefined) return
    const expected =
      'an https URL without user name, password and fragment; http is for loopback names, or with "allow_http": true'
    refinement.addIssue({ code: 'custom', path: ['url'], params: { expected } })
  })
  .describe('{"url", "address"} of a signer that answers eth_signTransaction')

const Pkcs11Section = z
  .strictObject({
    uri: z.string().describe('a pkcs11: URI (RFC 7512)'),
    module: path.describe("the path of the token's PKCS#11 module"),
    pin_file: path.describe('the path of a file of mode 0600 with the PIN'),
  })
  .superRefine(({ uri }, refinement) => {
    const fault = pkcs11UriFault(uri)
    if (fault === undefined) return
    const expected = `a pkcs11: URI of one key (RFC 7512): ${fault}`
    refinement.addIssue({ code: 'custom', path: ['uri'], params: { expected } })
  })
  .describe('{"uri", "module", "pin_file"} of a key in a PKCS#11 token')

/** What names the executor's key: one of them. */
const executorKeys = ['key_file', 'account', 'signer', 'pkcs11'] as const

export const ExecutorSection = z
  .strictObject({
    enabled: z.boolean().default(true).describe('true or false'),
    key_file: path.optional().describe('the path of a key file'),
    account: path.optional().describe('the name of an account'),
    signer: RemoteSignerSection.optional(),
    pkcs11: Pkcs11Section.optional(),
    // Far beyond any price of gas, and still a whole number of wei that arithmetic can hold.
    max_fee_gwei: z
      .number()
      .positive()
      .max(1_000_000_000)
      .default(1000)
      .describe('a number of gwei above 0, at most 1000000000'),
    batch: z.int().min(1).max(100).default(25).describe('an integer from 1 to 100'),
    in_flight: z.int().min(1).max(64).default(16).describe('an integer from 1 to 64'),
    max_proposal_gas: z
      .int()
      .min(100_000)
      .max(20_000_000)
      .default(defaultProposalGas)
      .describe('an amount of gas from 100000 to 20000000'),
    failed_gas_per_wallet: z
      .int()
      .min(100_000)
      .max(1_000_000_000_000)
      .default(defaultFailedGas)
      .describe('an amount of gas a day, from max_proposal_gas to 1000000000000'),
  })
  .refine((section) => section.failed_gas_per_wallet >= section.max_proposal_gas, {
    path: ['failed_gas_per_wallet'],
    params: { expected: 'an amount of gas a day, at least max_proposal_gas' },
  })
  .refine((section) => executorKeys.filter((key) => section[key] !== undefined).length < 2, {
    params: { expected: `an object with only one of ${executorKeys.join(', ')}` },
  })
  .prefault({})
  .describe(
    `an object with enabled, one of ${executorKeys.join(', ')}, max_fee_gwei, batch, in_flight, max_proposal_gas and failed_gas_per_wallet`,
  )
