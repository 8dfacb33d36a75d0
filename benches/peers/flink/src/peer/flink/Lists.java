package peer.flink;

import java.util.Collections;

import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;

/** A list per key, set up with one element each. */
final class Lists {
    private Lists() {}

    static Workload open(
            FlinkEnvironment flink, KeyedStateBackend<Long> backend, Ttl ttl, String operation)
            throws Exception {
        ListStateDescriptor<Long> descriptor = new ListStateDescriptor<>("listState", Long.class);
        ttl.enable(descriptor);
        ListState<Long> state =
                backend.getPartitionedState(
                        VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
        Workload.Step fill =
                () -> {
                    for (long key = 0; key < Inputs.KEYS; key++) {
                        Ttl.timeOf(key);
                        backend.setCurrentKey(key);
                        state.add(Inputs.number(key));
                    }
                    FlinkEnvironment.compact(backend, descriptor);
                };
        Workload.PerKey fold =
                () -> {
                    long sum = 0;
                    Iterable<Long> list = state.get();
                    if (list != null) {
                        for (Long element : list) {
                            sum = Workload.mix(sum, element);
                        }
                    }
                    return sum;
                };
        fill.run();
        Workload workload =
                new Workload(call(backend, state, operation), Workload.overAllKeys(backend, fold));
        if (operation.equals("listAppend") || operation.equals("listAddAll")) {
            workload.beforeRound(
                    () -> {
                        for (long key = 0; key < Inputs.KEYS; key++) {
                            backend.setCurrentKey(key);
                            state.clear();
                        }
                        fill.run();
                        ttl.stand();
                        System.gc();
                        flink.mails();
                    });
        }
        return workload;
    }

    private static Workload.Call call(
            KeyedStateBackend<Long> backend, ListState<Long> state, String operation) {
        switch (operation) {
            case "listGet":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    return state.get() == null ? 0 : 1;
                };
            case "listGetAndIterate":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    long sum = 0;
                    Iterable<Long> list = state.get();
                    if (list != null) {
                        for (Long element : list) {
                            sum += element;
                        }
                    }
                    return sum;
                };
            case "listUpdate":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    state.update(Collections.singletonList(Inputs.value(i)));
                    return 0;
                };
            case "listAdd":
                return i -> {
                    backend.setCurrentKey(Inputs.newKey(i));
                    state.update(Collections.singletonList(Inputs.value(i)));
                    return 0;
                };
            case "listAppend":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    state.add(Inputs.value(i));
                    return 0;
                };
            case "listAddAll":
                return i -> {
                    backend.setCurrentKey(Inputs.key(i));
                    state.addAll(Inputs.HUNDRED);
                    return 0;
                };
            default:
                throw new IllegalArgumentException(operation);
        }
    }
}
