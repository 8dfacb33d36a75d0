package peer.flink;

import java.util.HashMap;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;

/** The workload's constants: the same numbers as in {@code benches/src/micro/inputs.rs}. */
final class Inputs {
    static final int KEYS = Integer.getInteger("peer.keys", 500_000);
    static final int MAP_KEYS = 10;
    static final int LIST_VALUES = 100;

    static final Long[] SETUP_KEYS = shuffled(KEYS, 42, 0);
    static final Long[] NEW_KEYS = shuffled(KEYS, 43, KEYS);
    static final Long[] MAP_KEY_ORDER = shuffled(MAP_KEYS, 44, 0);
    static final Long[] VALUES = shuffled(2 * KEYS, 45, 0);
    static final Double[] MAP_VALUES = new Double[MAP_KEYS];
    static final Map<Long, Double> TEN = new HashMap<>(MAP_KEYS);
    static final List<Long> HUNDRED = new ArrayList<>(LIST_VALUES);

    static {
        for (int i = 0; i < MAP_KEYS; i++) {
            MAP_VALUES[i] = fraction(50 + i);
            TEN.put(MAP_KEY_ORDER[i], fraction(246 + i));
        }
        for (int i = 0; i < LIST_VALUES; i++) {
            HUNDRED.add(number(146 + i));
        }
    }

    private Inputs() {}

    static Long key(int i) {
        return SETUP_KEYS[i % KEYS];
    }

    static Long newKey(int i) {
        return NEW_KEYS[i % KEYS];
    }

    static Long value(int i) {
        return VALUES[i % (2 * KEYS)];
    }

    static Long mapKey(int i) {
        return MAP_KEY_ORDER[i % MAP_KEYS];
    }

    static Double mapValue(int i) {
        return MAP_VALUES[i % MAP_KEYS];
    }

    /** A number that depends on the seed alone (SplitMix64). */
    static long number(long seed) {
        return finish(seed + 0x9e3779b97f4a7c15L);
    }

    static double fraction(long seed) {
        return (number(seed) >>> 11) / (double) (1L << 53);
    }

    private static long finish(long bits) {
        bits = (bits ^ (bits >>> 30)) * 0xbf58476d1ce4e5b9L;
        bits = (bits ^ (bits >>> 27)) * 0x94d049bb133111ebL;
        return bits ^ (bits >>> 31);
    }

    /** The numbers {@code from..from + count} in a fixed random order (Fisher and Yates). */
    static Long[] shuffled(int count, long seed, long from) {
        Long[] numbers = new Long[count];
        for (int i = 0; i < count; i++) {
            numbers[i] = from + i;
        }
        long state = seed;
        for (int i = count - 1; i > 0; i--) {
            state += 0x9e3779b97f4a7c15L;
            int j = (int) Long.remainderUnsigned(finish(state), i + 1L);
            Long swapped = numbers[i];
            numbers[i] = numbers[j];
            numbers[j] = swapped;
        }
        return numbers;
    }
}
