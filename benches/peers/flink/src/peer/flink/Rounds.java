package peer.flink;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.state.CheckpointableKeyedStateBackend;

/**
 * One operation on one backend, round by round as asked on standard input.
 *
 * <p>Arguments: backend, operation, key groups. Commands, one a line: {@code ready}; {@code round
 * N}; {@code digest}; {@code memory}; {@code snapshot}. Answers, one a line: {@code ok} and
 * numbers, or {@code error} and text. It ends with its input.
 */
public final class Rounds {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final com.sun.management.OperatingSystemMXBean PROCESS =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private Rounds() {}

    public static void main(String[] args) throws Exception {
        // Whatever Flink prints must not get between the answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        int status = 0;
        try {
            FlinkEnvironment flink = new FlinkEnvironment(args[0]);
            flink.keyGroups = Integer.parseInt(args[2]);
            CheckpointableKeyedStateBackend<Long> backend = flink.open(LongSerializer.INSTANCE);
            serve(flink, backend, args[1], answers);
            backend.dispose();
            flink.close();
        } catch (Throwable failure) {
            answers.println("error " + failure.toString().replace('\n', ' '));
            failure.printStackTrace();
            status = 1;
        }
        answers.flush();
        // Native backends leave threads behind that would keep the JVM alive.
        Runtime.getRuntime().halt(status);
    }

    private static void serve(
            FlinkEnvironment flink,
            CheckpointableKeyedStateBackend<Long> backend,
            String operation,
            PrintStream answers)
            throws Exception {
        boolean alone = operation.equals("memory") || operation.equals("snapshots");
        Workload workload = alone ? null : open(flink, backend, operation);
        Snapshots snapshots =
                operation.equals("snapshots") ? new Snapshots(flink, backend) : null;
        flink.mails();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null; ) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "ready":
                    answers.println("ok");
                    break;
                case "round":
                    answers.println("ok " + round(flink, workload, Integer.parseInt(words[1])));
                    break;
                case "digest":
                    answers.println("ok " + Long.toUnsignedString(workload.digest.compute()));
                    break;
                case "snapshot":
                    answers.println("ok " + snapshots.round());
                    break;
                case "memory":
                    answers.println("ok " + Memory.measure(flink, backend));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            answers.flush();
        }
    }

    private static Workload open(
            FlinkEnvironment flink, CheckpointableKeyedStateBackend<Long> backend, String name)
            throws Exception {
        Ttl ttl = Ttl.of(name);
        String operation = ttl.operation(name);
        Workload workload = open(flink, backend, ttl, operation);
        ttl.stand();
        return ttl == Ttl.READ ? workload.beforeRound(ttl::beforeRound) : workload;
    }

    private static Workload open(
            FlinkEnvironment flink,
            CheckpointableKeyedStateBackend<Long> backend,
            Ttl ttl,
            String operation)
            throws Exception {
        if (operation.startsWith("value")) {
            return Values.open(backend, ttl, operation);
        } else if (operation.startsWith("list")) {
            return Lists.open(flink, backend, ttl, operation);
        } else if (operation.startsWith("map")) {
            return Maps.open(flink, backend, ttl, operation);
        } else if (operation.startsWith("timer")) {
            return Timers.open(backend, operation);
        }
        return Foldings.open(backend, operation);
    }

    /** Runs a round: wall, thread and process time in nanoseconds, a checksum of the answers. */
    private static String round(FlinkEnvironment flink, Workload workload, int number)
            throws Exception {
        workload.beforeRound.run();
        flink.mails();
        int calls = workload.callsPerRound;
        // One index runs through all rounds.
        int from = (int) ((long) number * calls % (2L * Inputs.KEYS));
        long process = PROCESS.getProcessCpuTime();
        long thread = THREADS.getCurrentThreadCpuTime();
        long wall = System.nanoTime();
        long sum = 0;
        for (int done = 0; done < calls; done += BATCH) {
            sum = batch(workload.call, from + done, Math.min(BATCH, calls - done), sum);
            if (flink.changelogOn) {
                flink.mails();
            }
        }
        wall = System.nanoTime() - wall;
        thread = THREADS.getCurrentThreadCpuTime() - thread;
        process = PROCESS.getProcessCpuTime() - process;
        return wall + " " + thread + " " + process + " " + Long.toUnsignedString(sum);
    }

    private static final int BATCH = 256;

    /** A method of its own, so that the compiler sees it often and optimizes it as a whole. */
    private static long batch(Workload.Call call, int from, int calls, long sum) throws Exception {
        for (int i = from; i < from + calls; i++) {
            sum = Workload.mix(sum, call.run(i));
        }
        return sum;
    }
}
