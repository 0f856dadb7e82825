<?php

const TOLERANCE_SECONDS = 300;

/**
 * Whether this message is genuine: the three webhook headers, and the body's bytes as they came
 * (file_get_contents('php://input')), before anything parses them.
 */
function verify(string $secret, string $id, string $timestamp, string $signature, string $body): bool
{
    if (!preg_match('/^[0-9]{1,12}$/D', $timestamp)) {
        return false;
    }
    if (abs(time() - (int) $timestamp) > TOLERANCE_SECONDS) {
        return false;
    }
    $key = base64_decode(preg_replace('/^whsec_/', '', $secret));
    $mac = hash_hmac('sha256', $id . '.' . $timestamp . '.' . $body, $key, true);
    $expected = 'v1,' . base64_encode($mac);
    // While a secret is being rotated there are two signatures: one that fits is enough.
    foreach (explode(' ', $signature) as $given) {
        if (hash_equals($expected, $given)) {
            return true;
        }
    }
    return false;
}
