/*
 * The conversation of these programs: a line in, of words with a blank between them, is asked, and a line out answers.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;

public class Lines {
    /** What a program answers to the words of a line. */
    public interface Program {
        String answer(String[] words) throws Exception;
    }

    /** Answers each line, until the input ends or the program fails. */
    public static void answer(Program program) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(program.answer(line.split(" ")));
            System.out.flush();
        }
    }

    /** Answers with "ok" and what the program says, or with the kind of its failure, by a function, and the failure. */
    public static void obey(Program program, Function<Throwable, String> kind) throws Exception {
        answer(words -> {
            try {
                return "ok " + program.answer(words);
            } catch (Throwable problem) {
                return kind.apply(problem) + " " + String.valueOf(problem).replace('\n', ' ');
            }
        });
    }
}
