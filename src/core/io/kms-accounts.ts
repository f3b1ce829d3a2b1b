import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { addressInService, signerOfService } from './kms/key-service.js'

type KmsPlace = { readonly key: string; readonly region?: string }

export async function kmsPlaceOf(text: string): Promise<{
  readonly kind: 'aws-kms' | 'gcp-kms'
  readonly place: KmsPlace
}> {
  const name = keyNameOf(text)
  if (name.service === 'gcp') return { kind: 'gcp-kms', place: { key: name.key } }
  const { currentRegion } = await import('./kms/aws.js')
  const region = name.region ?? (await currentRegion())
  return { kind: 'aws-kms', place: { key: name.key, region } }
}

export async function openKms(place: KmsPlace, address?: Address) {
  const service = await openService(place)
  try {
    return signerOfService(service, address ?? (await addressInService(service)))
  } catch (error) {
    service.close()
    throw error
  }
}

async function openService({ key, region }: KmsPlace) {
  if (region === undefined) return (await import('./kms/gcp.js')).openGcpKey({ key })
  return (await import('./kms/aws.js')).openAwsKey({ key, region })
}

const ofAws =
  /^(?:arn:aws[a-z-]*:kms:([a-z0-9-]+):\d{12}:(?:key|alias)\/[\w/-]{1,256}|alias\/[\w/-]{1,250}|mrk-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/

const ofGoogle =
  /^projects\/[\w.:-]+\/locations\/[\w-]+\/keyRings\/[\w-]+\/cryptoKeys\/[\w-]+\/cryptoKeyVersions\/[1-9]\d*$/

type KeyName =
  | {
      readonly service: 'aws'
      readonly key: string
      readonly region: string | undefined
    }
  | { readonly service: 'gcp'; readonly key: string }

/** AWS: key id, key ARN, `alias/…` or its ARN. Google Cloud: a key version. */
export function keyNameOf(text: string): KeyName {
  const aws = ofAws.exec(text)
  if (aws !== null) return { service: 'aws', key: text, region: aws[1] }
  if (ofGoogle.test(text)) return { service: 'gcp', key: text }
  const hint = /^projects\/.*\/cryptoKeys\/[\w-]+$/.test(text)
    ? 'name a version of the key too: …/cryptoKeyVersions/1'
    : 'give a key id, key ARN or alias/<name> of AWS, or projects/…/cryptoKeyVersions/<n> of Google Cloud'
  throw new UsageError('invalid_kms_key', 'the key is named as no key service names one', hint)
}
