import static java.nio.charset.StandardCharsets.UTF_8;

import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public final class Webhook {
    private static final long TOLERANCE_SECONDS = 300;

    /**
     * Whether this message is genuine: the three webhook headers, and the body's bytes as they came,
     * before anything parses them.
     */
    public static boolean verify(
            String secret, String id, String timestamp, String signature, byte[] body)
            throws GeneralSecurityException {
        if (!timestamp.matches("[0-9]{1,12}")) return false;
        long age = Instant.now().getEpochSecond() - Long.parseLong(timestamp);
        if (Math.abs(age) > TOLERANCE_SECONDS) return false;
        byte[] key = Base64.getDecoder().decode(secret.replaceFirst("^whsec_", ""));
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(UTF_8));
        byte[] expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(UTF_8);
        // While a secret is being rotated there are two signatures: one that fits is enough.
        for (String given : signature.split(" ")) {
            if (MessageDigest.isEqual(expected, given.getBytes(UTF_8))) return true;
        }
        return false;
    }
}
