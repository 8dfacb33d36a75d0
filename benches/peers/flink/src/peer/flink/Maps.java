package peer.flink;

import static peer.flink.Workload.ABSENT;

import java.util.Iterator;
import java.util.Map;

import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;

/** A map per key, set up with ten entries each. */
final class Maps {
    private Maps() {}

    static Workload open(
            FlinkEnvironment flink, KeyedStateBackend<Long> backend, Ttl ttl, String operation)
            throws Exception {
        MapStateDescriptor<Long, Double> descriptor =
                new MapStateDescriptor<>("mapState", Long.class, Double.class);
        ttl.enable(descriptor);
        MapState<Long, Double> state =
                backend.getPartitionedState(
                        VoidNamespace.INSTANCE,
                        VoidNamespaceSerializer.INSTANCE,
                        descriptor);
        for (long key = 0; key < Inputs.KEYS; key++) {
            Ttl.timeOf(key);
            backend.setCurrentKey(key);
            for (int j = 0; j < Inputs.MAP_KEYS; j++) {
                state.put(Inputs.MAP_KEY_ORDER[j], Inputs.fraction(key * Inputs.MAP_KEYS + j));
            }
            if ((key & 4095) == 0) {
                flink.mails();
            }
        }
        Workload.PerKey sum = () -> sum(state.iterator());
        return new Workload(call(backend, state, operation), Workload.overAllKeys(backend, sum));
    }

    private static long sum(Iterator<Map.Entry<Long, Double>> entries) {
        long sum = 0;
        while (entries.hasNext()) {
            Map.Entry<Long, Double> entry = entries.next();
            sum += entry.getKey() + Double.doubleToRawLongBits(entry.getValue());
        }
        return sum;
    }

    private static Workload.Call call(
            KeyedStateBackend<Long> backend, MapState<Long, Double> state, String operation) {
        switch (operation) {
            case "mapGet":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    Double value = state.get(Inputs.mapKey(i));
                    return value == null ? ABSENT : Double.doubleToRawLongBits(value);
                };
            case "mapContains":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    return state.contains(Inputs.mapKey(i) << 1) ? 1 : 0;
                };
            case "mapIsEmpty":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    return state.isEmpty() ? 1 : 0;
                };
            case "mapKeys":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    long sum = 0;
                    for (Long key : state.keys()) {
                        sum += key;
                    }
                    return sum;
                };
            case "mapValues":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    long sum = 0;
                    for (Double value : state.values()) {
                        sum += Double.doubleToRawLongBits(value);
                    }
                    return sum;
                };
            case "mapEntries":
                // Flink's benchmark asks for entries() twice per invocation; so does this.
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    return state.entries() == null ? 0 : sum(state.entries().iterator());
                };
            case "mapIterator":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    return sum(state.iterator());
                };
            case "mapUpdate":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    state.put(Inputs.mapKey(i), Inputs.mapValue(i));
                    return 0;
                };
            case "mapPutAll":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    state.putAll(Inputs.TEN);
                    return 0;
                };
            case "mapAdd":
                return i -> {
                    backend.setCurrentKey(Inputs.newKey(i));
                    state.put(Inputs.mapKey(i), Inputs.mapValue(i));
                    return 0;
                };
            case "mapRemove":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    state.remove(Inputs.mapKey(i));
                    return 0;
                };
            default:
                throw new IllegalArgumentException(operation);
        }
    }
}
