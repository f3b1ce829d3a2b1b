import type { Address } from '../protocol/schema.js'
import { keyNameOf } from './kms/key-names.js'
import { addressInService, type KeyService, signerOfService } from './kms/key-service.js'

export type KmsPlace = { readonly key: string; readonly region?: string }

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

/** Asks the service nothing before it signs. Without an address: that of the service's key now. */
export async function openKms(place: KmsPlace, address?: Address) {
  const service = await openService(place)
  try {
    return signerOfService(service, address ?? (await addressInService(service)))
  } catch (error) {
    service.close()
    throw error
  }
}

async function openService({ key, region }: KmsPlace): Promise<KeyService> {
  if (region === undefined) return (await import('./kms/gcp.js')).openGcpKey({ key })
  return (await import('./kms/aws.js')).openAwsKey({ key, region })
}
