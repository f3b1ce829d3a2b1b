import fc from 'fast-check'
import { Pkcs11UriFault, parsePkcs11Uri } from '#protocol/pkcs11-uri'

const percent = (bytes: Uint8Array) =>
  [...bytes].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')

describe('pkcs11: URIs (RFC 7512)', () => {
  test('attributes are read as RFC 7512 writes them', () => {
    expect(parsePkcs11Uri('pkcs11:object=my-pubkey;type=private')).toEqual({ object: 'my-pubkey' })
    expect(parsePkcs11Uri('pkcs11:type=private;object=my-key')).toEqual({ object: 'my-key' })
    expect(
      parsePkcs11Uri(
        'pkcs11:token=The%20Software%20PKCS%2311%20Softtoken;manufacturer=Snake%20Oil,%20Inc.;model=1.0;object=my-certificate;type=private;id=%69%95%3E%5C%F4%BD%EC%91;serial=',
      ),
    ).toEqual({
      token: 'The Software PKCS#11 Softtoken',
      manufacturer: 'Snake Oil, Inc.',
      model: '1.0',
      object: 'my-certificate',
      id: '69953e5cf4bdec91',
      serial: '',
    })
    expect(parsePkcs11Uri('pkcs11:slot-id=327;id=ab%01')).toEqual({ slotId: 327, id: '616201' })
    expect(parsePkcs11Uri('PKCS11:token=%C3%A9;id=%00')).toEqual({ token: 'é', id: '00' })
  })

  test.each([
    ['http://x', 'the URI does not begin with pkcs11:'],
    ['pkcs11:', 'the URI names no key: object=<label> or id=<%xx…> is missing'],
    ['pkcs11:token=a', 'the URI names no key: object=<label> or id=<%xx…> is missing'],
    ['pkcs11:object=', 'the URI names no key: object=<label> or id=<%xx…> is missing'],
    ['pkcs11:object=a;object=b', 'the URI names object twice'],
    ['pkcs11:object', 'the URI has a part that is not <attribute>=<value>'],
    ['pkcs11:object=a b', 'object of the URI holds a character that must be written as %xx'],
    ['pkcs11:object=%C3', 'object of the URI is not UTF-8'],
    ['pkcs11:object=a%2', 'object of the URI holds a character that must be written as %xx'],
    ['pkcs11:object=a;type=cert', 'type of the URI is not private'],
    ['pkcs11:object=a;slot-id=x', 'slot-id of the URI is not a number'],
    [
      'pkcs11:object=a;library-version=3',
      'the URI chooses by something else than token, manufacturer, model, serial, object, id, slot-id, type',
    ],
    [
      'pkcs11:object=a?pin-source=/p',
      'the URI may not have pin-source: the PIN file is named beside the URI',
    ],
    [
      'pkcs11:object=a?x=1&module-path=/m',
      'the URI has an attribute behind ? that means nothing here',
    ],
    [
      'pkcs11:object=a?module-path=/m',
      'the URI may not have module-path: the module is named beside the URI',
    ],
  ])('%s is refused', (text, words) => {
    expect(() => parsePkcs11Uri(text)).toThrow(new Pkcs11UriFault(words))
  })

  test('R5: a PIN in a URI is refused, and no message repeats it', () => {
    for (const text of [
      'pkcs11:object=a?pin-value=s3cr3t',
      'pkcs11:pin-value=s3cr3t',
      'pkcs11:s3cr3t=1;s3cr3t',
    ]) {
      expect(() => parsePkcs11Uri(text)).toThrow(Pkcs11UriFault)
      expect(() => parsePkcs11Uri(text)).not.toThrow(/s3cr3t/)
    }
    expect(() => parsePkcs11Uri('pkcs11:object=a?pin-value=s3cr3t')).toThrow(
      'the URI may not have pin-value: a PIN does not stand in a URI, but in the PIN file',
    )
  })

  test('any label and any ID comes back from its percent-encoded form', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', minLength: 1 }),
        fc.uint8Array({ minLength: 1 }),
        (label, id) => {
          const text = `pkcs11:object=${percent(new TextEncoder().encode(label))};id=${percent(id)}`
          const { object, id: found } = parsePkcs11Uri(text)
          expect(new TextEncoder().encode(object)).toEqual(new TextEncoder().encode(label))
          expect(found).toBe(Buffer.from(id).toString('hex'))
        },
      ),
    )
  })

  test('junk is a URI or refused with a sentence, and never anything else', () => {
    const junk = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc
        .array(
          fc.constantFrom(
            'token',
            'object',
            'id',
            'type',
            'pin-value',
            '=',
            ';',
            '?',
            '&',
            '%41',
            '%',
            'é',
            ' ',
          ),
        )
        .map((parts) => parts.join('')),
    )
    fc.assert(
      fc.property(junk, (rest) => {
        try {
          const { object = '', id = '' } = parsePkcs11Uri(`pkcs11:${rest}`)
          expect(object + id).not.toBe('')
        } catch (error) {
          expect(error).toBeInstanceOf(Pkcs11UriFault)
        }
      }),
      { numRuns: 2_000 },
    )
  })
})
