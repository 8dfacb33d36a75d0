package peer.flink;

import java.time.Duration;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;

/** The TTL that an operation's name asks for; as in {@code benches/src/micro/ttl.rs}. */
enum Ttl {
    NONE(""),
    /** A third of the values has expired. */
    THIRD("ttlThird"),
    /** Reads refresh. */
    READ("ttlRead"),
    /** All values live. */
    WRITE("ttl");

    static final long LIFETIME = 1_000_000;
    private static final long FIRST_WRITE = 1_000;
    private static final long ALL_LIVE = 1_000_000;
    private static final long THIRD_EXPIRED = 1_334_000;

    private static long now;
    static long sink;

    /** Stands until it is moved, and costs what the system's clock costs. */
    static final TtlTimeProvider CLOCK =
            () -> {
                sink = System.currentTimeMillis();
                return now;
            };

    private final String prefix;

    Ttl(String prefix) {
        this.prefix = prefix;
    }

    static Ttl of(String operation) {
        for (Ttl ttl : new Ttl[] {THIRD, READ, WRITE}) {
            if (operation.startsWith(ttl.prefix)) {
                return ttl;
            }
        }
        return NONE;
    }

    /** The operation without the TTL. */
    String operation(String name) {
        String rest = name.substring(prefix.length());
        return rest.substring(0, 1).toLowerCase() + rest.substring(1);
    }

    void enable(StateDescriptor<?, ?> descriptor) {
        if (this == NONE) {
            return;
        }
        descriptor.enableTimeToLive(
                StateTtlConfig.newBuilder(Duration.ofMillis(LIFETIME))
                        .setUpdateType(
                                this == READ
                                        ? StateTtlConfig.UpdateType.OnReadAndWrite
                                        : StateTtlConfig.UpdateType.OnCreateAndWrite)
                        .setStateVisibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
                        .build());
    }

    /** The clock is where the set-up writes this key. */
    static void timeOf(long key) {
        now = FIRST_WRITE + key * (ALL_LIVE - FIRST_WRITE) / Inputs.KEYS;
    }

    /** Set-up is over. */
    void stand() {
        now = this == THIRD ? THIRD_EXPIRED : ALL_LIVE;
    }

    void beforeRound() {
        if (this == READ) {
            now += 1;
        }
    }
}
