/*
 * Runs Apache Kafka's console tools, one after the other, in one JVM: to start one for each takes longer than its work.
 *
 * A line in has words in base64: what the tool reads from its input, its main class, its arguments. A line out has the
 * status with which it ended, and in base64 what it wrote to its output and to its errors. What a tool would do when its
 * JVM ends is done when it has ended. Each run loads the tools' classes anew, because some of them count in static fields.
 *
 * The first argument is the jar with the tools, which must not be on the class path.
 */

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.internals.Exit;

public class ToolHost {
    static final long LIMIT_MS = 120_000;
    static final int TOOK_TOO_LONG = 124;
    static final List<Runnable> hooks = new ArrayList<>();
    static volatile Integer status;

    static class Ended extends Error {
    }

    public static void main(String[] arguments) throws Exception {
        URL[] jar = {Path.of(arguments[0]).toUri().toURL()};
        Exit.setExitProcedure((code, message) -> {
            if (status == null) { // a tool may catch what follows, and end again
                status = code;
            }
            throw new Ended();
        });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        PrintStream answers = System.out;
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = Arrays.stream(line.split(" ", -1)).map(ToolHost::decoded).toArray(String[]::new);
            var out = new ByteArrayOutputStream();
            var errors = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(words[0].getBytes(UTF_8)));
            System.setOut(new PrintStream(out, true, UTF_8));
            System.setErr(new PrintStream(errors, true, UTF_8));
            try (var loader = new URLClassLoader(jar, ToolHost.class.getClassLoader())) {
                var run = new Thread(() -> run(loader, words[1], Arrays.copyOfRange(words, 2, words.length)));
                run.setContextClassLoader(loader);
                run.setDaemon(true);
                status = null;
                hooks.clear();
                run.start();
                run.join(LIMIT_MS);
                if (run.isAlive()) {
                    status = TOOK_TOO_LONG;
                    Arrays.stream(run.getStackTrace()).forEach(System.err::println);
                }
            }
            System.out.flush();
            System.err.flush();
            answers.println(status + " " + encoded(out) + " " + encoded(errors));
            answers.flush();
        }
    }

    static void run(ClassLoader loader, String name, String[] arguments) {
        try {
            loader.loadClass(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException problem) {
            if (!(problem.getCause() instanceof Ended)) {
                problem.getCause().printStackTrace();
                status = 1;
            }
        } catch (ReflectiveOperationException problem) {
            problem.printStackTrace();
            status = 1;
        }
        hooks.forEach(Runnable::run);
        if (status == null) {
            status = 0;
        }
    }

    static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), UTF_8);
    }

    static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
